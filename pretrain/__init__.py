"""Pre-training without labels: one loop, one file per method, one exported backbone file.

method.py      the Method protocol: all that the loop may read of a method
methods/       one paper per file; METHODS is the registry
parts/         what two or more methods share
recipes/       the published runs: method, data, schedule, batch
views.py       random views of an image: recipes and the numbers they draw
augment.py     applies those numbers to batches of pixels, on the device that trains
augment_cpu.py applies them to one image at a time, in workers
styles.py      a bank of styled copies of the images
data.py        training images: which, in which order
feed.py        batches of views, from memory or from files
loader.py      worker processes that prepare batches, and end with the run
optim.py       optimizers and learning-rate schedules
run.py         from a command to a run, and from a run to its backbone file
loop.py        the only pre-training loop
progress.py    the lines on the console
metrics.py     what a run logs: metrics.jsonl and TensorBoard
checkpoint.py  save and resume
stop.py        signals that ask a run to stop
launch.py      processes, devices, and one run per folder
last_line.py   the last line of a stopped run, also under torchrun
export.py      writes the backbone file
benchmark.py   images/s of a step, and all ratios
bench_losses.py, bench_views.py  parts of it
timing.py      time and memory of two ways to do the same
__main__.py    python -m pretrain
"""
