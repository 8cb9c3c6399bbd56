"""Plans: what a run would do, before it does anything.

options.py            the options of run_all, and their ranges
cells.py              the tasks that a request or a paper's name stands for, a cell for each seed
checkpoints.py        where backbones come from: files, heads, --as; cached descriptions for plans
data_folder.py         what is wrong with the folder of the data, before any file is opened
plan.py               a line per cell: state, cost, what is missing; a line per group
cluster_resources.py  GPUs, processors and hours of a cell, from its protocol
"""
