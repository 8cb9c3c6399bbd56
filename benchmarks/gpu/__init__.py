"""Measurements of a GPU for `python -m benchmarks.gpu_check`, which writes one page of them.

pretraining.py  steps of published recipes
floor.py        what a step takes at least, and a plain supervised step
static_step.py  a step that a CUDA graph can hold
evaluation.py   features, a linear probe, and steps that train whole networks
fused.py        frozen features by cuDNN's fused convolutions, against today's
timing.py       time and memory of a call, the batch that fits, generated photographs
"""
