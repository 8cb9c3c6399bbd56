"""What an evaluation needs to run, besides the tools of pretrain/running.

stages.py        files with the tensors of a finished stage, behind a checksum
memory.py        free memory, and the share of it that decoded images may take
measured_rates.py  measured speed of GPUs, for plans
console.py       log lines and progress, as bars in a terminal
folders.py       the folders of a cell
option_ranges.py the range of every numeric option, and of a schedule's share
row_names.py     the names that a row of the tables may have
"""
