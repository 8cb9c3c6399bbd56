"""Cells as job arrays of a cluster.

arrays.py       submits cells, submits failed ones again, cancels
submission.py   what was submitted: one file for each submission
cell_status.py  where submitted cells are: queued, running, done, failed and why
collect.py      the last job of a submission: reasons and tables
"""
