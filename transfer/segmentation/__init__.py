"""A class for every pixel: a fully convolutional network on the backbone.

recipe.py   every number
network.py  mmsegmentation's model, as loop and test call it
proof.py    that the backbone in it computes what it did
samples.py  an image and its mask: scaled, flipped, cropped
train.py    samples and optimizer, handed to the loop of training/
predict.py  a trained network on the images of a split
iou.py      intersection over union
"""
