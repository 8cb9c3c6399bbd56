"""Checks of pre-training on a GPU: python -m pretrain.checks; on a CPU they test themselves.

__main__.py    the command line, which prints lines of JSON for the program that started it
catalog.py     all checks, their groups and expected times; it needs no torch
report.py      the lines of JSON, and what becomes of an error
place.py       the device and the folder
started.py     runs of recipes on generated images
comparison.py  bounds on what rounding may do to results
methods.py     losses and gradients of each method against the CPU, and in bfloat16
"""
