"""Pre-training without labels: one loop, one file per method, one exported backbone file.

methods/       one paper per file; METHODS is the registry
parts/         what two or more methods share
recipes.py     the published runs: method, data, schedule, batch
views.py       random views of an image: recipes and the numbers they draw
augment.py     applies those numbers to batches of pixels
data.py        training images: which, in which order
feed.py        batches of views, from memory or from files
optim.py       optimizer and learning-rate schedules
run.py         from a command to a run, and from a run to its backbone file
loop.py        the only pre-training loop
progress.py    the lines on the console
metrics.py     what a run logs: metrics.jsonl and TensorBoard
checkpoint.py  save and resume
stop.py        signals that ask a run to stop
launch.py      processes, devices, and one run per folder
export.py      writes the backbone file
benchmark.py   images/s of a step; the streamed loss beside the usual one
__main__.py    python -m pretrain
"""
