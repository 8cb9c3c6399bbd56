"""From a backbone file to a result on a downstream task.

__main__.py    python -m transfer
cells/         one backbone, task, protocol and seed: from the data to the record
tasks/         one task per file; TASKS
detection/     detectors: recipe, two engines, metrics
segmentation/  a class for every pixel
finetuning/    the loop that trains a whole network, and what it needs
frozen/        features of a frozen backbone, and everything that is trained on them
backbone.py    reads the backbone file and foreign checkpoints
convert/       weights between naming schemes, and the proof that they arrived
datasets/      one data set per file: what it is, where it lies, whether it is whole
record.py      the result file
metrics.py     accuracy, average precision: pure functions
running/       files, locks, signals, processes, the console

Imports go downwards in this order.
"""
