"""Plans: what a run would do, before it does anything.

cells.py              task keys, shared settings and cells of a request
plan.py               a line per cell: state, cost, what is missing
plan_groups.py        the plan on one screen: a line per group of tasks
missing_data.py       the one command that gets the data sets that a plan lacks
declared.py            the recipes that a user declares for foreign files
suites.py             the tasks that each paper reports
checkpoints.py        backbones without weights, cached for plans
cluster_resources.py  GPUs, processors and hours of a cell, from its protocol
option_ranges.py      the range of every numeric option
slurm_options.py      the command-line options for a cluster
"""
