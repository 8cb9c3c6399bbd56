"""Pictures of a few predictions, kept beside a record for people to look at.

tile.py      one picture, the choice of images, thumbnails, the pictures of one record as files
objects.py   boxes, masks, keypoints and classes of pixels beside the truth
mistakes.py  images about which a classifier is most wrong, or that it ranks in a wrong place
"""
