"""Measurements of a GPU for `python -m benchmarks.gpu_check`, which writes one page of them.

pretraining.py  steps of published recipes
evaluation.py   features, a linear probe, and steps that train whole networks
timing.py       time of a call, its launches and waits, memory, the batch that fits; photographs
"""
