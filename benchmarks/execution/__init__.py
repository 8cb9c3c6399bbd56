"""Execution of cells.

sequence.py       cells one after another in this process, and the progress of a whole run
jobs.py           what one process works on, here or on a cluster, and what it waits for
one_cell.py       one cell in a process of its own, and its command line
workers.py        cells side by side on one machine
snapshots.py      snapshots of pre-training runs: curves
calibration.py    a public checkpoint against the numbers published for it
states.py         the state of a cell that was started, as text, and as a page that refreshes itself
run_file.py       the cells of a run on this machine, and their states from files
ending.py         what a run leaves: its request, tables, the last screen
"""
