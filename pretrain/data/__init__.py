"""Data of pre-training: image files become batches of views.

images.py       training images, their order, pixels and styled copies
kept_listing.py  listings of earlier starts
last_writes.py  notice of images that were changed meanwhile
tree.py         files and folders, also behind links; a million paths in little memory
random_numbers.py  the random numbers of views, from seed, epoch and image
views.py        random views of an image: recipes, crops and colors
augment.py      applies those numbers to batches of pixels, on the device that trains
augment_cpu.py  applies them to one image at a time, in workers
feed.py         batches of views from memory or from files
side_stream.py  makes the next batch while a GPU trains; one copy for its arrays
"""
