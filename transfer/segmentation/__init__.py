"""A class for every pixel: a fully convolutional network on the backbone.

recipe.py   all numbers of network, training and test
network.py  mmsegmentation's model for our loop, its predictions at the images' size; its backbone
samples.py  images and masks, scaled, flipped and cropped
train.py    samples and optimizer for the loop of finetuning/; predictions on a split
linear.py   a linear classifier of a frozen encoder's maps: head, samples, windows of the test
incontext.py  segmentation by nearest patches of training images, without training
masks.py    predicted masks in files: mIoU, also on resampled test sets; pictures
iou.py      intersection over union
"""
