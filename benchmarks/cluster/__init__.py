"""Run cells as job arrays on a cluster.

arrays.py       submits, resubmits and cancels cells; the final job that writes the tables
"""
