"""One cell of the tables: one backbone, task, protocol and seed.

request.py            the cell, the settings that cells share; is a record stale, what departs?
execution.py          from data to record; what to do where memory is short
declaration.py        the recipe that a user declares for a foreign file
command.py            the command line for one cell
checked_data.py       the check of a cell's data sets, and of changes after it
shared_classifier.py  the classifier that another cell trains and this one uses
many_gpus.py          a cell in several processes, one per GPU
"""
