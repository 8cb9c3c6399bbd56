"""Tools for long computations of any kind.

atomic_files.py  files written whole or not at all, and errors that say what to do
stages.py        files with the tensors of a finished stage, behind a checksum
lock.py          locks that admit one process to a folder or a file
stop.py          an orderly stop after a signal
loader.py        a data loader whose worker processes make batches ahead
memory.py        free memory, and the share of it that decoded images may take
shared_memory.py batches for another process, in shared memory or copied
portable.py      errors that another process can raise again
processes.py     the processes of a run, the GPUs of a machine
measured_rates.py  measured speed of GPUs, for plans
console.py       log lines and progress, as bars in a terminal
folders.py       the folders of a cell
option_ranges.py the range of every numeric option
row_names.py     the names that a row of the tables may have
schedule.py      the share of a protocol's length that is run
not_finite.py    the error of a training that has diverged
"""
