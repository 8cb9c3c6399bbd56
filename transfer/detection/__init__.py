"""Detectors on a backbone: one recipe, two engines.

recipe.py              all numbers of network, training and test
fit.py                 checks: recipe against backbone, tensors against the detector
sample.py              input and output of a detector; Detector
engines.py             choice of the engine
torchvision_engine/    detectron2's detector from torchvision's operators
detectron2_engine.py   the reference
scaled_gradient.py     CO2's divided gradients
proof.py               check that the loaded backbone computes what its source does
samples.py             an image and its objects, resized and flipped
train.py               samples and optimizer, passed to the loop of finetuning/
detect.py              a trained detector on the images of a split; the file of its detections
results.py             detections in the original image
coco_ap.py, voc_ap.py  average precision
"""
