"""Conversion of weights between naming schemes.

architectures.py  the architectures by name, and BackboneError
resnet.py         the networks of these architectures, and their names in detectron2
files.py          reads a file's tensors: format from its first bytes, names from its nesting
inert.py          unpickles without importing or calling what a file names
naming.py         the names that each project gives a ResNet's tensors; reads names.yaml
matching.py       finds the networks in a file, chooses one and accounts for every other tensor
stated.py         what entries of the file say about its network and images
proof.py          sets every tensor once; the features of two images must differ
public_files.py   published files, recognized by their hashes
inspection.py     the report of `python -m transfer inspect`
"""
