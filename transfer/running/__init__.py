"""Processes, signals and files of a run; nothing here knows of images or networks.

loader.py    batches made ahead by worker processes
portable.py  errors that another process can raise again
"""
