"""Pictures of a few predictions, kept beside a record for people to look at.

tile.py      one picture, the choice of images, thumbnails
objects.py   boxes, masks and keypoints beside the truth
segments.py  classes of pixels beside the truth
mistakes.py  images about which a classifier is most wrong
rankings.py  images in a wrong place of the ranking for a class
store.py     the pictures of one record as files
"""
