"""Execution of cells.

sequence.py     cells one after another in this process
overall.py      progress of a whole run, with the time left
one_cell.py     one cell in a process of its own, and its command line
workers.py      cells side by side on one machine
calibration.py  a public checkpoint against the numbers published for it
"""
