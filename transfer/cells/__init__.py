"""One cell of the tables: one backbone, task, protocol and seed.

cell.py               the request, what makes a record stale, the execution, departures
checked_data.py       what is opened is what was checked
shared_classifier.py  the classifier that another cell has trained: found, trained or waited for
many_gpus.py          a cell in several processes, one per GPU
"""
