"""Speed: our way and the usual way to do the same, in turn in one process, and their ratio.

python -m benchmarks.speed.NAME [options]   (--help: its options)

views.py              views of pre-training against torchvision's usual pipeline
shared_extraction.py  one pass over photographs for several networks against a pass for each
harness.py            times them
"""
