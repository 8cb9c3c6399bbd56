"""Run cells.

graph.py          jobs: groups of cells that one process evaluates, and their dependencies
local.py          runs jobs on this machine, in one or several processes
states.py         the states of all cells, as text and as a page
ending.py         start and end of a run: states, tables, the summary
"""
