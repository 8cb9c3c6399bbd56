"""Data sets to evaluate on: their descriptions, readers and checks.

facts.yaml holds descriptions, published counts, how to get each set, and names that readers need;
the files of a family hold its readers, and what writes the small generated versions. A new set:
docs/howto/add_a_dataset.md.

labeled.py        one label per image: Aircraft, Birdsnap, ..., SUN397
cifar.py          CIFAR-10 and CIFAR-100: arrays
imagenet/         ImageNet-1k, its subsets, and the test sets that have its classes
objects/          Pascal VOC and COCO: objects, masks, keypoints
synthetic/        draws the images of the small versions and writes them all

catalog.py        merges the data sets into DATASETS; opens a split of a set
info.py           the form of a description and of its origin; reads both from facts.yaml
lists.py          lists of images and classes in text files; names the line that is wrong
images.py         one split: images decoded on demand; labels, also of MATLAB; fingerprint
scenes.py         one split of a detection set: images with objects, in arrays for all processes
segmented.py      one split of a segmentation set: images with masks, and what is wrong with them
splits.py         seeded draws for splits and shares that nobody published
folders.py        the folders that a cell reads and writes; the names of rows
expected.py       how many images there should be (check.py compares); `small-data.json`
check.py          counts, classes, broken files and annotations; `require` before a run; excerpts
repeated.py       images in two splits, twice in one, under two labels; copies of these
"""
