"""Checks of this machine's GPU: what it computes equals the CPU's, and how fast it is.

__main__.py    python -m transfer.checks
catalog.py     all checks, in the order in which they run
report.py      a check, and its answer in one line of JSON
comparison.py  differences with their bounds
speed.py       time of a call and peak memory
training_step.py  a pass and a step of a network in training
features.py    frozen features, nearest neighbors, linear heads
detectors.py   all detectors, in float64, float32 and low precision
fixed_detector.py  a detector's answer to fixed samples from fixed weights
small_samples.py   small images with objects of every kind
segmentation.py    the fully convolutional network
classifier.py  time of a step that trains a classifier
processes.py   batch norm over several processes
resume.py      trainings that are saved and restored
rates.py       rates for plans, from what was measured
"""
