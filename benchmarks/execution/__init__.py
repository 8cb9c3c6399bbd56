"""Execution of cells.

graph.py          jobs: what one process works on, here or on a cluster, and what it waits for
local.py          jobs on this machine, in this process or in several
states.py         the states of all cells, as text and as a page
ending.py         beginning and end of a run: states, tables, the last screen
"""
