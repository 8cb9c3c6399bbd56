"""Measurements of a GPU for `python -m benchmarks.gpu_check`, which writes one page of them.

pretraining.py  steps of published recipes
evaluation.py   features, a linear probe, and steps that train whole networks
timing.py       time and memory of a call, the batch that fits, generated photographs
"""
