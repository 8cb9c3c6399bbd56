"""Data sets to evaluate on: which there are, where they lie, whether they are whole.

catalog.py           one table: classes, metric, splits, how to get each set; `open_split`
info.py              the form of its entries
robustness_sets.py   its entries of sets that are only tested on
images.py            one split: images decoded on demand, labels, fingerprint
upright.py           images and their sizes as the EXIF orientation wants them seen
scenes.py            one split of a detection set: images with objects; which can be learned from
segmented.py         one split of a segmentation set: images with masks, and what is wrong with them
splits.py            seeded draws for the splits that nobody published
expected.py          how many images there should be; `small-data.json`
check.py             counts, classes, broken files and annotations; `require` before a run
unchanged.py         whether a set is still what was checked
class_folders.py     images kept in one folder per class
torchvision_sets.py  Aircraft, Cars, DTD, Food-101, Pets
birdsnap.py, caltech101.py, cifar.py, cub200.py, flowers.py, imagenet.py, imagenet_c.py, inat1k.py,
objectnet.py, places365.py, sun397.py, voc.py
                     own readers, one published layout each
labelled_share.py    the labelled 1 % and 10 % of ImageNet-1k: published lists, or a draw
coco.py, voc_objects.py, voc_masks.py
                     readers of detection sets, and of a segmentation set
sbd.py               SBD's masks as PNG files
corrupt.py           corruptions of ImageNet-100 where ImageNet-C is absent
imagenet100.txt      the class folders of ImageNet-100
generate.py          small versions of all sets and a pool for pre-training
layouts.py           how each publisher lays out the files; VOC in voc_layout.py, COCO in
                     coco_layout.py, ImageNet-C and ObjectNet in robustness_layout.py
patterns.py          the drawn images
"""
