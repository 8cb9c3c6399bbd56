"""Measurements of a machine's GPUs; what they must compute is in tests/gpu (`pytest -m gpu`).

measure.py      one measurement in a process of its own
pretraining.py  steps of published recipes
evaluation.py   features, a linear probe, and steps that train whole networks
timing.py       time of a call, its launches and waits, memory, the batch that fits; photographs
page.py         from answers to markdown, and to rates for plans
"""
