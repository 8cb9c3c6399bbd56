"""Detectors on a backbone: one recipe, two engines.

recipe.py              all numbers of network, training and test
sample.py              input and output of a detector; Detector
engines.py             choice of the engine
torchvision_engine/    detectron2's detector from torchvision's operators
detectron2_engine.py   the reference
scaled_gradient.py     CO2's divided gradients
proof.py               check that the loaded backbone computes what its source does
samples.py             an image and its objects, resized and flipped
train.py               training by the loop of finetuning/, and detections on a split
results.py             detections in the original image
coco_ap.py, voc_ap.py  average precision
"""
