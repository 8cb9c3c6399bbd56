"""Detectors on a backbone: one recipe, two engines.

recipe.py              every number
fit.py                 what fits together: recipe and backbone, tensors and places
sample.py              what goes into a detector and what comes out; Detector
engines.py             which engine carries a recipe out
torchvision_engine/    detectron2's detector from torchvision's operators
detectron2_engine.py   the reference
scaled_gradient.py     CO2's divided gradients
proof.py               that the backbone computes what it did
samples.py             an image and its objects, resized and flipped
solver.py              parameter groups
train.py               samples and optimizer, handed to the loop of training/
detect.py              a trained detector on the images of a split
results.py             detections in the original image
coco_ap.py, voc_ap.py  average precision
"""
