"""Pascal VOC and COCO: images with labels, objects, masks and keypoints.

voc.py          VOC 2007 and 2012: labels, objects with boxes, masks; converts SBD's masks
coco.py         COCO 2017: objects with outlines, persons with keypoints, and their faults
box_layouts.py  boxes that contradict the layout of their file, and the layout they look like
annotation_store.py  COCO 2017: large annotation files, parsed once per machine
"""
