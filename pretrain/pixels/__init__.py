"""Pixels of images: from a file's content to square crops.

Pre-training and transfer share this room, so it imports nothing else of theirs.

image_names.py  which names in a folder are images, and which belong to a system or tool
decoding.py     the content of an image file as RGB pixels; sizes of images
boxes.py        boxes of random resized crops, and what torchvision draws for one crop
crops.py        cuts boxes out and resizes them, in eight bits or on a device in floating point
"""
