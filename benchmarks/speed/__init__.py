"""Compare the speed of our implementations with the usual ones.

python -m benchmarks.speed.NAME [options]   (--help: its options)

views.py              views of pre-training, compared with torchvision's pipeline
shared_extraction.py  features of several networks from one pass, compared with one pass each
harness.py            the timer
"""
