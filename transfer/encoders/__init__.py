"""Open checkpoints of any project; `Encoder` is the class of all networks.

A file becomes an `Encoder` in four steps: read its tensors and values (files.py), find the network
by tensor names and shapes (matching.py), apply settings that a ResNet's file declares (stated.py),
and set every tensor once and check the features of fixed images (verify.py).

opening.py        opens a file: our format, a third-party ResNet, or another network
encoder.py        `Encoder`: network, input, hash, random initialization, heads; without torch
options.py        options that select a network other than a ResNet

hub.py            files and networks of the Hugging Face hub, by address
file_types.py     the format of a file by its first bytes; without torch
files.py          reads a file's tensors, with names from its nesting
safe_unpickler.py unpickles without importing or calling anything
naming.py         tensor names of ResNets, by project; reads names.yaml
matching.py       finds the networks in a file, selects one and classifies all other tensors
stated.py         settings of network and images that a file declares
verify.py         sets every tensor once; checks that only the image determines the features
report.py         the report of `python -m transfer inspect`
public_files.py   published files, recognized by their hashes

architectures.py  the architectures by name, and BackboneError
resnets.py        torchvision's ResNets with their stems
sources.py        other networks: timm, torchvision, transformers, a user's file
modules.py        a user's network: copy, checks and outputs
pooling.py        a network with its pooling
maps.py           maps of patches, or of the last convolution, for dense tasks
projector.py      the projector of a checkpoint, for tasks that use embeddings
"""
