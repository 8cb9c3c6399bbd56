"""Support of long runs, whatever they train.

launch.py      processes, devices, and one run per folder
stop.py        signals that ask a run to stop
last_line.py   the last line of a stopped run
progress.py    progress lines on the console
metrics.py     what a run logs: metrics.jsonl and TensorBoard
view_sheet.py  a picture of the first views
wandb_log.py   the same on Weights & Biases, on request
checkpoint.py  saves and loads a run's state
"""
