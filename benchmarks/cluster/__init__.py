"""Cells as job arrays of a cluster.

arrays.py       submits cells, submits failed cells again, cancels
submission.py   the file that describes a submission
cell_status.py  states of submitted cells; the last job of a submission: failure files and tables
"""
