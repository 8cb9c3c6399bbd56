"""One cell of the tables: one backbone, task, protocol and seed.

request.py            the cell, and the settings that cells share
execution.py          from data to record; what makes a record stale; advice where memory runs out
declaration.py        the recipe that a user declares for a foreign file
departures.py         deviations from the paper's protocol
command.py            the command line for one cell
checked_data.py       the check of a cell's data sets, and of changes after it
shared_classifier.py  the classifier that another cell trains and this one uses
many_gpus.py          a cell in several processes, one per GPU
"""
