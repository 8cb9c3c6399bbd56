"""The parts of files that nobody vouches for, each read within a budget and without executing any.

budget.py            the limits of time and memory, and text of limited length
objects.py           the objects that a pickle can build: stored tensors and inert stand-ins
machine.py           the stack machine of pickles
opcodes.py           the functions of its opcodes
replacements.py      the functions that stand for those of torch, numpy and Python
containers.py        walks through what a file holds: names of leaves, limits of size and depth
zip_directory.py     the entries of a zip archive
safetensors_file.py  the tensors of a safetensors file
"""
