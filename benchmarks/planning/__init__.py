"""Plans: what a run would do, before it does anything.

options.py      the options of run_all, and their ranges
cells.py        the tasks that a request or a paper stands for; the check of the data folder
checkpoints.py  where backbones come from: files, snapshots, heads, --trained-with
plan.py         a line per cell: state, cost, what is missing; a line per group
"""
