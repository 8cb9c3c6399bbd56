"""Pre-training without labels: one loop, and one file per method.

__main__.py  python -m pretrain; the text of --list
command.py   the options of a run with their defaults, and the precision of its networks
start.py     starts a command: processes, one run per folder; turns errors into exit statuses
job.py       turns a command into a job: checks, networks, feed, first lines of output
step_memory.py  a lower bound on the memory of a step, computed in advance
loop.py      the only pre-training loop, which also resumes runs
checkpoint.py saves and loads a run's state
metrics.py   the logs of a run: metrics.jsonl, TensorBoard, Weights & Biases, its first views
method.py    the base class of methods: everything that other modules may read of one
export.py    writes the files of a job: backbone.pt, encoder.pt, snapshots, with their origin
settings.py  checks of a recipe's numbers
optim.py     optimizers and learning-rate schedules
methods/     one paper per file; METHODS is the registry
parts/       modules and functions that several methods use
recipes/     the published runs: method and settings, data, schedule, batch size
data/        images, views, their augmentation, and the feed of batches
pixels/      decoding, boxes and crops; transfer uses it, too
running/     processes, loader, stop, locks, atomic writes; transfer uses it, too
"""
