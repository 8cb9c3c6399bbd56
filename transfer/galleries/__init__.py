"""Galleries: pictures of a few predictions, stored next to the record.

tile.py      one picture of a gallery; selection of images, thumbnails, gallery files
objects.py   predicted boxes, masks, keypoints and pixel classes next to the ground truth
mistakes.py  the worst mistakes of classifiers
"""
