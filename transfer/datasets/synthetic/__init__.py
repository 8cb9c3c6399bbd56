"""Small versions of the data sets, drawn here, for the demo and the tests.

generate.py   writes the small version of every set, and images to pre-train on
patterns.py   draws the images: 24 kinds of pattern that serve as classes
labeled.py    one label per image, in the published layouts; writes files with their folders
voc.py        Pascal VOC: objects with boxes and masks, in the published layout
coco.py       COCO: objects with outlines, persons with keypoints, in the published layout
"""
