"""Data of pre-training: image files become batches of views.

images.py       training images, their order, pixels, styled copies and changes meanwhile
listing.py      finds the images of a folder, also behind links, and names what it leaves out
bad_images.py   images that do not decode: counted, recorded, and replaced by others
views.py        random views of an image: recipes, random numbers, crops and colors
augment.py      applies those numbers to batches of pixels, on the device that trains
augment_cpu.py  applies them to one image at a time, in workers
feed.py         batches of views from memory or from files
side_stream.py  makes the next batch while a GPU trains; one copy for its arrays
"""
