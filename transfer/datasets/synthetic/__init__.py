"""Small versions of the data sets, drawn here, for the demo and the tests.

generate.py   writes the small version of every set, and images to pre-train on
patterns.py   draws the images: 24 kinds of pattern that serve as classes
labeled_sets.py  the small versions of labeled.py, in their published layouts
labeled.py    small versions with one label per image; writes files with the folders above them
voc.py        Pascal VOC: objects with boxes and masks, in the published layout
coco.py       COCO: objects with outlines, persons with keypoints, in the published layout
"""
