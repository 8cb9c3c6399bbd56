"""ImageNet, its subsets, and the test sets that share its classes.

imagenet.py          ImageNet-1k, ImageNet-100, the labeled 1 % and 10 %; sorts flat val images
imagenet100.txt      the class folders of ImageNet-100
objectnet.py         photographs of another kind, thirteen classes (objectnet.txt); test images only
imagenet_c.py        corrupted test images of ImageNet-100's classes
"""
