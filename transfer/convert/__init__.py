"""Weights between naming schemes.

resnet.py         which networks can be transferred; BackboneError
read_file.py      which tensors a file holds: format by its first bytes, names by its nesting
safe_pickle.py    how a pickle is read without executing any of it
torch_file.py     the zip and the legacy container of torch.save
layouts.py        how each project names a ResNet's tensors
candidates.py     which ResNets are in a file, and which of them is the backbone
account.py        what every other tensor of the file is
proof.py          that the converted network computes what the file's tensors compute
from_public.py    the steps above in order: a foreign file under torchvision's names
to_detectron2.py  a backbone under detectron2's names
inspection.py     the report of `python -m transfer inspect`
"""
