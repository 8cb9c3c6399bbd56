"""Generated small versions of the datasets, for the demo and the tests.

generate.py   writes the small version of each dataset, and unlabeled images for pre-training
patterns.py   draws the images: 24 kinds of patterns, used as classes
labeled.py    datasets with one label per image, in the published layouts
voc.py        Pascal VOC: objects with boxes and masks, in the published layout
coco.py       COCO: objects with outlines, persons with keypoints, in the published layout
"""
