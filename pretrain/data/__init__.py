"""Data of pre-training: image files become batches of views.

images.py       training images, their order, pixels, styled copies and changes meanwhile
listing.py      finds the images of a folder, also behind links, and names what it leaves out
bad_images.py   images that do not decode: counted, recorded, and replaced by others
views.py        random views of an image: recipes, random numbers, crops and colors
augment.py      applies the colors to one view at a time, in workers, and normalizes
augment_device.py  applies the colors to a batch, on the device that trains
feed.py         batches of views for each step
"""
