"""Checkpoints and networks: opens the file of any project; one class for all networks.

A file becomes an `Encoder` in four steps: files.py reads its tensors and values, matching.py finds
the network among the names, and verify.py sets every tensor once and checks the features of fixed
images, of networks other than ResNets more closely. In between, stated.py applies what the file of
a ResNet says about it.

opening.py        opens a file: our own, a ResNet under the names of any project, another network
encoder.py        `Encoder`: network, input, hash, random twin, heads; loads no torch
options.py        the options that name a network which is not a ResNet

hub.py            files and networks of the Hugging Face hub, by address
file_types.py     the format of a file by its first bytes; refuses other files without torch
files.py          reads a file's tensors, with names from its nesting
inert.py          unpickles without importing or calling what a file names
naming.py         the names that each project gives a ResNet's tensors; reads names.yaml
matching.py       finds the networks in a file, chooses one and accounts for every other tensor
stated.py         what entries of the file say about its network and images
verify.py         sets every tensor once; the image alone must determine the features
report.py         the report of `python -m transfer inspect`
public_files.py   published files, recognized by their hashes

architectures.py  the architectures by name, and BackboneError
resnets.py        torchvision's ResNets with their stems
sources.py        other networks: timm, torchvision, transformers, own file
modules.py        a network of the user: its copy, its checks and its outputs
pooling.py        a network of any source with its pooling
maps.py           maps of patches, or of the last convolution, for dense tasks
projector.py      the projector of a checkpoint, for tasks that look at embeddings
"""
