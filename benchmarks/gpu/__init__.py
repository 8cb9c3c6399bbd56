"""The measurements of `python -m benchmarks.gpu_check`.

pretraining.py  steps of published recipes
floor.py        a reference time of a step, from FLOPs and memory traffic
static_step.py  a step that can be captured in a CUDA graph
evaluation.py   features, a linear probe, and fine-tuning steps
fused.py        frozen features with cuDNN's fused convolutions
timing.py       time and memory of a call, the batch that fits, generated images
"""
