"""Evaluate a backbone file on downstream tasks.

__main__.py    python -m transfer
readme_tables.py
               renews the generated tables of README.md
cells/         one evaluation: one backbone, task, protocol and seed, from the data to the record
tasks/         one task per file; TASKS
galleries/     pictures of a few predictions, kept beside a record
detection/     detectors: recipe, two engines, metrics
segmentation/  semantic segmentation
finetuning/    the loop that trains a whole network, and its parts
frozen/        features of a frozen backbone, and everything that is trained on them
topology/      which network the tensors of a foreign file belong to, by its running statistics
projector.py   reads the projector of a backbone, for tasks that look at embeddings
backbone.py    reads the backbone file and foreign checkpoints
convert/       conversion of weights between naming schemes, and the proof that it is right
getting/       downloads, unpacks, sorts and checks data sets, or links them
datasets/      one data set per file: description, reader, small version; the check of data sets
record.py      the result file
metrics.py     accuracy and average precision: pure functions
running/       console, memory, ranges of options, measured rates

A module imports only from modules below it in this list.
"""
