"""Training of whole networks for hours: detectors, segmentation, classification with few labels.

loop.py            the training loop; GPU memory
state.py           a training and its checkpoint
schedule.py        the settings that the loop reads, recipes, learning rates and their search
stream.py          the order of the images
options.py         the options of a user; a recipe for another length or batch
norms.py           the norm layer, and its statistics after training
proof.py           check that the loaded backbone computes what its source does
classification.py  an image classifier with a fine-tuned backbone
"""
