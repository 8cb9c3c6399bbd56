"""Plan a run before it starts.

options.py      the options of run_all, and their ranges
cells.py        the tasks of a request or a paper; the check of the data folder
checkpoints.py  where backbones come from: files, snapshots, heads, --trained-with
plan.py         state, cost and missing data of each cell and task group
"""
