"""The loop that trains whole networks for hours: detectors, segmentation, few labels.

loop.py                  the loop
state.py                 its checkpoint
schedule.py              the numbers that it reads, and the learning rate of a step
stream.py                which images, in which order
recipe.py                what it needs of a recipe
length.py                a recipe for another length or batch
options.py               what a user may change
prepared.py              preparation of a network and its proof, identity of a training
learning_rate_search.py  learning rates tried on held-out images
norms.py                 which norm layer, over how many images
precise_norm.py          statistics of the norms after training
classification.py        a class for every image, by a backbone that learns as well
"""
