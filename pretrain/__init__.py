"""Pre-training without labels: one loop, one file per method, one exported backbone file.

__main__.py  python -m pretrain; the text of --list
command.py   the options of a run, and the arithmetic (bf16) of its networks
ranges.py    types of numeric settings with their ranges
start.py     starts a command: processes, one run per folder; turns errors into exit statuses
job.py       turns a command into a job: checks, networks, feed, what the first lines print
step_memory.py  the memory that a step needs at least, before it is made
loop.py      the only pre-training loop, and where a run goes on
checkpoint.py saves and loads a run's state
metrics.py   what a run logs: metrics.jsonl, TensorBoard, Weights & Biases, its first views
method.py    the protocol of methods: all that the rest may read of one
export.py    from a job to its files: which network, its origin, backbone.pt, encoder.pt, snapshots
settings.py  checks of a recipe's numbers
optim.py     optimizers and learning-rate schedules
methods/     one paper per file; METHODS is the registry
parts/       what two or more methods share
recipes/     the published runs: method and its settings, data, schedule, batch
data/        images, views, their augmentation, and the feed of batches
pixels/      decoding, boxes and crops; transfer uses it, too
running/     processes, loader, stop, locks, files written whole; transfer uses it, too
"""
