"""Detectors on a backbone: one recipe, two engines.

recipe.py              all numbers of network, training and test; the norms that a paper adds
detector.py            input and output of a detector, Detector, and the proof that the loaded
                       backbone computes what its source does
engines.py             choice of the engine
torchvision_engine/    detectron2's detector from torchvision's operators
detectron2_engine.py   the reference
samples.py             an image and its objects, resized and flipped
train.py               training by the loop of finetuning/, and detections on a split
results.py             detections in the original image
coco_ap.py, voc_ap.py  average precision
"""
