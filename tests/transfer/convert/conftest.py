"""Random networks whose every tensor matters, for the tests of conversions."""

from collections.abc import Callable
from functools import cache

import pytest
import torch
from torch import Tensor

from transfer.convert.architectures import Stem
from transfer.convert.resnet import build_resnet

Weights = dict[str, Tensor]
GetWeights = Callable[..., Weights]
"""weights("resnet18", stem="imagenet"): a state dict in torchvision's names, no fc."""


@cache
def _weights(arch: str, stem: Stem) -> Weights:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        weights: Weights = dict(build_resnet(arch, stem).state_dict())
        for name, tensor in weights.items():
            # fresh norms are all alike: a swap of two would go unseen
            if name.endswith(("running_mean", "bias")):
                tensor.normal_(std=0.1)
            elif name.endswith("running_var") or (tensor.ndim == 1 and name.endswith("weight")):
                tensor.uniform_(0.5, 1.5)
            elif tensor.ndim == 0:
                tensor.fill_(7)
    return weights


@pytest.fixture
def weights() -> GetWeights:
    """Random networks, each made once."""
    return lambda arch="resnet18", *, stem="imagenet": dict(_weights(arch, stem))
