"""Cells as job arrays of a cluster.

arrays.py       submits cells, submits failed cells again, cancels
cell_status.py  submissions and the states of their cells; the last job: failure files, tables
"""
