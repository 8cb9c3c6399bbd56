"""Networks to transfer: ResNets of torchvision's form, those of other libraries, the user's own.

options.py  the options that name a network which is not a ResNet
encoder.py  `Encoder`: network, input, hash, random twin, heads; loads no torch
opening.py  opens a file: our own, a ResNet under the names of any project, or another network
sources.py  builds other networks and their pooling: timm, torchvision, transformers, own file
trial.py    tries the network on fixed images: the image alone must determine its features
"""
