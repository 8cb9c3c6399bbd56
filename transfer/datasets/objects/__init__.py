"""Pascal VOC and COCO: images with labels, objects, masks and keypoints.

voc.py          VOC 2007 and 2012: labels of images
voc_objects.py  VOC 2007 and 2012: objects with boxes
voc_masks.py    VOC 2012: masks of classes, with those of SBD
voc_classes.py  the twenty class names
sbd.py          converts SBD's masks to PNG files for voc_masks.py
coco.py         COCO 2017: objects with outlines, persons with keypoints
coco_faults.py  COCO 2017: what is wrong with an annotation
coco_truth.py   COCO 2017: annotations of a split as pycocotools evaluates them
annotation_store.py  large annotation files, parsed once per machine and mapped by all processes
"""
