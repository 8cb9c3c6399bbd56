"""The loop that trains whole networks for hours: detectors and segmentation.

course.py        the numbers it reads, and the learning rate of a step
stream.py        which images, in which order
length.py        a recipe for another length or batch
prepared.py      what detection and segmentation do around the loop
options.py       what a user may ask besides
loop.py          the loop; state.py: its checkpoint
rates.py         learning rates tried on held-out images
norms.py         which norm layer, over how many images: decided here alone
precise_norm.py  statistics of the norms after training
"""
