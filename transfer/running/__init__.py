"""What every long computation needs, whatever it computes.

atomic_files.py  files written whole or not at all, and errors that say what to do
stages.py        tensors of a finished stage, believed only when intact
lock.py          one process at a time in a folder
stop.py          signals that ask for an orderly end
loader.py        batches made ahead by worker processes
portable.py      errors that another process can raise again
processes.py     the processes of a run, the GPUs of a machine
console.py       the lines people read
folders.py       where things lie
schedule.py      how much of a protocol is run
not_finite.py    the error of a training that has diverged
"""
