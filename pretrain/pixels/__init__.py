"""Pixels of images: from a file's content to square crops.

Pre-training and transfer share this package, so it imports only pretrain.running.

image_names.py  which file names are images, and which belong to a system or tool
decoding.py     the content of an image file as RGB pixels; sizes of images
boxes.py        boxes of random resized crops; torchvision's box of one crop
crops.py        cuts out boxes and resizes them, in eight bits
"""
