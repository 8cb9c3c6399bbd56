"""Pascal VOC and COCO: images with labels, objects, masks and keypoints.

voc.py          VOC 2007 and 2012: labels of images, objects with boxes, masks of classes
sbd.py          converts SBD's masks to PNG files for VOC 2012
coco.py         COCO 2017: objects with outlines, persons with keypoints
coco_faults.py  COCO 2017: what is wrong with an annotation
annotation_store.py  COCO 2017: large annotation files, parsed once per machine
"""
