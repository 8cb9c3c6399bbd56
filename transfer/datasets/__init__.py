"""Evaluation datasets: descriptions, readers and checks.

facts.yaml contains descriptions, published counts, download instructions, and names that readers
need. Each family's file contains its readers and the writers of the small generated versions. To
add a dataset, see docs/howto/add_a_dataset.md.

labeled.py        one label per image: Aircraft, Birdsnap, ..., SUN397
cifar.py          CIFAR-10 and CIFAR-100: arrays
imagenet/         ImageNet-1k, its subsets, and test sets with its classes
objects/          Pascal VOC and COCO: objects, masks, keypoints
synthetic/        generates the images and files of the small versions

catalog.py        merges all datasets into DATASETS; opens a split of a dataset
info.py           dataclasses of descriptions and sources, read from facts.yaml
lists.py          lists of images and classes in text files; errors name the line
images.py         one split: images decoded on demand, labels, fingerprint; reads MATLAB files
scenes.py         one split of a detection dataset: images with objects, packed in arrays
segmented.py      one split of a segmentation dataset: images with masks; mask checks
splits.py         seeded draws for splits and fractions that are not published
folders.py        the folders that an evaluation reads and writes; valid row names
expected.py       expected numbers of images (check.py compares); `small-data.json`
check.py          checks counts, classes, files and annotations; registers excerpts
repeated.py       images in two splits or twice in one; copies
"""
