"""Data sets to evaluate on: their descriptions, readers and checks.

There is one file per data set, or per family with one layout. It holds the description, published
counts, instructions to get the set, its reader, and its small generated version.

aircraft.py, birdsnap.py, caltech101.py, cars.py, cifar.py, cub200.py, dtd.py, flowers.py, food.py,
imagenet.py, inat1k.py, pets.py, places365.py, sun397.py
                     one label per image
imagenet_subsets.py  the labeled 1 % and 10 % of ImageNet-1k
imagenet_c.py, imagenet_c_made.py, objectnet.py
                     test images only: corrupted ones, and photographs of another kind
voc.py, voc_objects.py, voc_masks.py
                     Pascal VOC: labels, objects, masks; class names in voc_classes.py
coco.py              COCO 2017: objects with outlines, persons with keypoints

catalog.py           merges them into DATASETS; opens a split of a set
info.py              the form of a description
images.py            one split: images decoded on demand, labels, fingerprint
scenes.py            one split of a detection set: images with objects; which are used for training
segmented.py         one split of a segmentation set: images with masks, and what is wrong with them
splits.py            seeded draws for splits and shares that nobody published
drawn_lists.py       stores the list of images of such a draw
expected.py          how many images there should be; `small-data.json`
check.py             counts, classes, broken files and annotations; `require` before a run
unchanged.py         tells whether a set is still what was checked
class_folders.py     images in one folder per class
upright.py           images turned by their EXIF orientation
sbd.py               converts SBD's masks to PNG files for voc_masks.py
make_corruptions.py  writes the images of imagenet_c_made.py
imagenet100.txt      the class folders of ImageNet-100
synthetic/           draws the images of the small versions and writes them all
"""
