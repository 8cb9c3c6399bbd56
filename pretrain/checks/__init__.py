"""Checks of pre-training on a GPU: python -m pretrain.checks; on a CPU they test themselves.

__main__.py      the command line, which prints lines of JSON for the program that started it
catalog.py       all checks, their groups and expected times; it needs no torch
report.py        the lines of JSON, and what becomes of an error
place.py         the device and the folder
started.py       runs of recipes on generated images
comparison.py    bounds on what rounding may do to results
methods.py       losses and gradients of each method against the CPU, and in bfloat16
waits.py         steps that wait for no GPU, and the methods that have to
views.py         views of the device against those of the CPU
resume.py        runs that go on from a checkpoint against runs that never stopped
compilation.py   compiled networks against others
processes.py     batches that processes share against one process
shared_batch.py  what each of these processes computes
steps.py         reports of the steps of published recipes
phases.py        milliseconds of the phases of a step
traces.py        launches, waits and copies of a step
gpu_peaks.py     what GPUs can do at most
scaling.py       images/s of all GPUs against one
"""
