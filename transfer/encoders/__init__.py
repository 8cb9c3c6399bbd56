"""Encoders other than torchvision's ResNets, for the tasks on frozen features.

options.py  the options that name one
encoder.py  an encoder and its file: network, input, random twin
sources.py  builds the network and its pooling: timm, torchvision, transformers, own file or module
trial.py    tries the network on fixed images: the image alone must determine its features
"""
