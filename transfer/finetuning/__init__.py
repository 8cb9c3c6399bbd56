"""Training of whole networks for hours: detectors, segmentation, classification with few labels.

loop.py                  the training loop
side_by_side.py          several networks trained on one stream of images
state.py                 its checkpoint
schedule.py              the settings that it reads, recipes, the learning rate of a step
stream.py                the order of the images
options.py               the options of a user; a recipe for another length or batch
learning_rate_search.py  search for a learning rate on held-out images
gpu.py                   memory layout, kernels and memory on a GPU
norms.py                 the norm layer, and its statistics after training
classification.py        an image classifier with a fine-tuned backbone
"""
