"""Benchmarks of pre-training: two implementations in one process, and their ratio.

benchmark.py     images/s of a training step, and all ratios
bench_losses.py  losses against direct implementations
bench_views.py   views against torchvision's pipeline
timing.py        time and memory of two ways to do the same
"""
