"""Tools for long computations of any kind, which transfer and benchmarks may import too.

Nothing here knows images, tasks or methods, or imports another room.

errors.py        bases of the errors that a caller may catch
atomic_files.py  files written whole or not at all, with a checksum too; errors that say what to do
lock.py          locks that admit one process to a folder or a file
stop.py          an orderly stop after a signal, and its last line
loader.py        a data loader whose worker processes make batches ahead, in shared memory
processes.py     the processes of a run, the GPUs of a machine, errors from one to another
console.py       log lines, and progress as lines or bars
memory.py        free memory of this machine, container or job, and the share for decoded images
plugins.py       what installed packages add to the registries
command_line.py  an unknown option in one sentence; ranges of numbers; nearest names; a closed pipe
"""
