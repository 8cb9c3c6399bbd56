"""What a long run needs, whatever it trains.

launch.py      processes, devices, and one run per folder
stop.py        signals that ask a run to stop
last_line.py   the last line of a stopped run
progress.py    the lines on the console
metrics.py     what a run logs: metrics.jsonl and TensorBoard
checkpoint.py  save and resume
"""
