"""Pascal VOC and COCO: images with labels, objects, masks and keypoints.

voc.py          VOC 2007 and 2012: labels, objects with boxes, masks; converts SBD's masks
coco.py         COCO 2017: objects with outlines, persons with keypoints; annotation checks
box_layouts.py  detects boxes that were stored in an unexpected layout
annotation_store.py  COCO 2017: cache of parsed annotation files
"""
