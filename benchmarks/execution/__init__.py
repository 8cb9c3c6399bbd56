"""Execution of cells.

sequence.py       cells one after another in this process, and the progress of a whole run
jobs.py           what one process works on, here or on a cluster, and what it waits for
one_cell.py       one cell in a process of its own, and its command line
workers.py        cells side by side on one machine
states.py         cells that were started here or on a cluster: files, states as text and as a page
ending.py         what a run leaves: its request, tables, the last screen
"""
