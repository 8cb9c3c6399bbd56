"""Semantic segmentation with a backbone: fully convolutional, linear and in-context.

recipe.py   all settings of networks, training and test
network.py  mmsegmentation's FCN with the interface of our training loop
samples.py  images and masks, scaled, flipped and cropped
predict.py  predicted masks of a split
linear.py   linear segmentation on frozen feature maps: head, samples, sliding-window test
incontext.py  segmentation by nearest patches of training images, without training
masks.py    predicted masks in files: mIoU, bootstrap mIoU, gallery
iou.py      intersection over union
"""
