"""ImageNet, its subsets, and the test sets that share its classes.

imagenet.py          ImageNet-1k and ImageNet-100, and their classes
imagenet100.txt      the class folders of ImageNet-100
imagenet_subsets.py  the labeled 1 % and 10 % of ImageNet-1k
val_labels.py        lists of the classes of val images, which sort a flat folder
objectnet.py         photographs of another kind, thirteen classes; test images only
imagenet_c.py        corrupted test images, as published
imagenet_c_made.py   the stand-in for them, made on the user's machine
make_corruptions.py  writes the images of imagenet_c_made.py
"""
