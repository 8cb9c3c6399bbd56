"""Pixels of images: from a file's content to square crops.

Pre-training and transfer share this room, so it imports nothing else of theirs.

decoding.py     the content of an image file as RGB pixels; sizes of images
boxes.py        boxes of random resized crops, and what torchvision draws for one crop
crop_cpu.py     cuts boxes out of single images and resizes them, in eight bits
crop_device.py  cuts boxes out of images on a device and resizes them, in floating point
"""
