"""What the checks still take from here.

timing.py          wait for a GPU
view_pipelines.py  photographs and one thread
"""
