"""Data of pre-training: image files become batches of views.

images.py       training images, their order and their pixels; styled copies; changed files
listing.py      finds the images of a folder, follows links, and reports skipped files
bad_images.py   images that do not decode: counted, recorded, and replaced by others
views.py        random views of an image: recipes, random numbers, crops and colors
augment.py      applies the colors to one view at a time, in workers; normalizes
augment_device.py  applies the colors to a batch, on the training device
feed.py         batches of views for each step
"""
