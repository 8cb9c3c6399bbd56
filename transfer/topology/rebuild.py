"""Write a foreign backbone as our own file, as the network and input that its statistics fit."""

import io
from dataclasses import replace
from pathlib import Path

import torch

from pretrain.running.atomic_files import write_whole
from transfer.backbone import FORMAT, Backbone, BackboneError, InputFormat
from transfer.topology.check import Topology, inputs_of
from transfer.topology.known_networks import NETWORKS, Input, Network

EPS = 1e-5
"""Epsilon of torchvision's norms."""


def write_as_fits(backbone: Backbone, topology: Topology, path: Path) -> Backbone:
    """Write the backbone as the best-fitting network that this suite can build; return it.

    Channels in BGR, the range of the pixels, their normalization and the norms' epsilon are
    absorbed exactly: the features are those of the fitting network in evaluation. Fine-tuning
    normalizes by batch statistics with torchvision's epsilon. BackboneError if the topology was not
    checked or is undecided, or for a network that this suite cannot build.
    """
    if not topology.checked or topology.undecided:
        raise BackboneError(f"{topology.sentence}; nothing is written")
    (network,) = (known for known in NETWORKS if known.name == topology.network.name)
    (way,) = (way for way in inputs_of(backbone.input) if way.name == topology.input.name)
    rebuilt = _with_input(_with_network(backbone, network), way)
    content = {
        "format": FORMAT,
        "arch": rebuilt.arch,
        "stem": rebuilt.stem,
        "input": {
            "mean": list(rebuilt.input.mean),
            "std": list(rebuilt.input.std),
            "size": rebuilt.input.size_px,
            "channels": "RGB",
        },
        "made_by": {"converted_from": backbone.source, "topology": topology.sentence},
        "state_dict": rebuilt.state_dict,
    }
    buffer = io.BytesIO()
    torch.save(content, buffer)
    write_whole(path, buffer.getvalue())
    return rebuilt


def _with_network(backbone: Backbone, network: Network) -> Backbone:
    """Return the backbone with the stem, or with variances that absorb the epsilon."""
    if network.stem is not None:
        return replace(backbone, stem=network.stem)
    if network.eps is None:
        raise BackboneError(
            f"the file fits {network.name!r}, which this suite cannot build: take a checkpoint of "
            f"torchvision's network, or evaluate it in the project that trained it"
        )
    difference = network.eps - EPS
    weights = {
        name: tensor + difference if name.endswith("running_var") else tensor
        for name, tensor in backbone.state_dict.items()
    }
    return replace(backbone, state_dict=weights)


def _with_input(backbone: Backbone, way: Input) -> Backbone:
    """Return the backbone for RGB from 0 to 1, with the mean and std that do the same."""
    weights = backbone.state_dict
    if way.reverse:
        weights = weights | {"conv1.weight": weights["conv1.weight"].flip(1)}
    mean, std = (
        (first / way.scale, second / way.scale, third / way.scale)
        for first, second, third in (way.mean, way.std)
    )
    form = InputFormat(mean=mean, std=std, size_px=backbone.input.size_px)
    return replace(backbone, state_dict=weights, input=form)
