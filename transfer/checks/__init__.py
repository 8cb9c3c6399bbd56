"""Checks of this machine's GPU: what it computes equals the CPU's, and how fast it is.

__main__.py    python -m transfer.checks
catalog.py     all checks, in the order in which they run
report.py      a check, and its answer in one line of JSON
comparison.py  differences with their bounds
features.py    frozen features, nearest neighbors, linear heads
speed.py       rates and peak memory
"""
