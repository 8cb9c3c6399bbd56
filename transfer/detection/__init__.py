"""Detectors on a backbone: one recipe, two engines.

recipe.py              all settings of network, training and test
detector.py            `Detector`, the base class of both engines; its inputs and outputs
engines.py             choice of the engine
torchvision_engine/    detectron2's detector, built from torchvision's operators
detectron2_engine.py   detectron2's own detector, the reference
samples.py             images and their objects, resized and flipped
results.py             detections on a split, in the original images
coco_ap.py, voc_ap.py  average precision
"""
