"""Benchmarks of pre-training: two implementations in one process, and their ratio.

benchmark.py       all benchmarks
options.py         their options
bench_steps.py     images/s of a training step
bench_losses.py    losses against direct implementations
bench_views.py     views against torchvision's pipeline
view_pipelines.py  the two pipelines of views, and their times
timing.py          time and memory of two ways to do the same
"""
