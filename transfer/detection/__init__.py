"""Detectors on a backbone: one recipe, two engines.

recipe.py              every number
options.py             what a user may ask besides
fit.py                 what fits together: recipe and backbone, tensors and places
sample.py              what goes into a detector and what comes out; Detector
engines.py             which engine carries a recipe out
torchvision_engine/    detectron2's detector from torchvision's operators
detectron2_engine.py   the reference
norms.py               which norm layer, decided here alone
proof.py               that the backbone computes what it did
samples.py             an image and its objects, resized and flipped
stream.py              which images, in which order
solver.py              parameter groups and learning rate
train.py               the loop; state.py: its checkpoint
precise_norm.py        statistics of the norms after training
detect.py              a trained detector on the images of a split
results.py             detections in the original image
coco_ap.py, voc_ap.py  average precision
"""
