"""From a backbone file to a result on a downstream task.

backbone.py    reads the backbone file and foreign checkpoints
convert/       from and to other projects' weights
datasets/      what each data set is, where it lies, whether it is whole
features.py    frozen features, cached
folded.py      a frozen network made for speed
crops.py       random crops of training images, in which order
finetune.py    the only supervised loop on frozen features
classifier.py  linear classifiers, and the one that other tasks use
few_shot_training.py  many small classifiers on features, trained at once
nearest.py     votes of the nearest neighbors
linear_svm.py  linear SVMs by the dozen
cost_search.py their cost, by cross-validation
stages.py      what an interrupted search finds again
metrics.py     pure functions
tasks/         one protocol per file; TASKS
training/      the loop of hours, and what it needs; for the three below
detection/     detectors
segmentation/  a class for every pixel
classification.py
               a class for every image, by a backbone that learns as well
cell.py        one backbone, task, protocol and seed: from the data to the record
dependent.py   a classifier that another cell trains: found, trained or waited for
alone.py       one process at a time
record.py      the result file
folders.py     where things lie
schedule.py    how much of a protocol is run
running/       loader processes and errors that cross the border of a process
stop.py        leaving in an orderly way
console.py     the lines people read
__main__.py    python -m transfer
"""
