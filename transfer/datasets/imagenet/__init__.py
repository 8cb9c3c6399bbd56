"""ImageNet, its subsets, and the test sets that share its classes.

imagenet.py          ImageNet-1k, ImageNet-100, the labeled 1 % and 10 %; sorts flat val images
imagenet100.txt      the class folders of ImageNet-100
objectnet.py         ObjectNet: test images of thirteen classes (objectnet.txt)
imagenet_c.py        ImageNet-C: corrupted test images of ImageNet-100's classes
"""
