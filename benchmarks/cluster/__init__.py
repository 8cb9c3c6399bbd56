"""Cells as job arrays of a cluster.

arrays.py       submits cells, submits failed cells again, cancels; states; the last job
"""
