"""What a run would do, before it does anything.

plan.py               a line per cell: state, cost, what is missing
suites.py             which tasks each paper reports
checkpoints.py        what a checkpoint is, remembered for plans
cluster_resources.py  GPUs, processors and hours of a cell, from its protocol
slurm_options.py      what a user may ask of a cluster
"""
