"""Execution of cells.

sequence.py     cells one after another in this process
one_cell.py     one cell in a process of its own, and its command line
workers.py      cells side by side on one machine
snapshots.py    snapshots of pre-training runs: curves
calibration.py  a public checkpoint against the numbers published for it
"""
