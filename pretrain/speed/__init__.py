"""Benchmarks of pre-training: both ways in one process, and their ratio.

benchmark.py     images/s of a training step, and all ratios
bench_losses.py  losses against the written-out ones
bench_views.py   views against torchvision's pipeline
timing.py        time and memory of two ways to do the same
"""
