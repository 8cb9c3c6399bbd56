"""Random networks in which every tensor matters, under other projects' names."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

import pytest
import torch
from torch import Tensor

from transfer.encoders.architectures import BackboneError, Stem
from transfer.encoders.encoder import Encoder
from transfer.encoders.files import Contents, read_file
from transfer.encoders.opening import load_backbone
from transfer.encoders.resnets import build_resnet

Weights = dict[str, Tensor]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A path whose name tells nothing of what a test writes there."""
    return tmp_path / "file"


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


def weights(arch: str = "resnet18", *, stem: Stem = "imagenet") -> Weights:
    """Return a random network in torchvision's names, without fc.

    Each is made once.
    """
    return dict(_weights(arch, stem))


def below(prefix: str, weights: Mapping[str, Tensor]) -> Weights:
    return {prefix + name: tensor for name, tensor in weights.items()}


def another(weights: Weights) -> Weights:
    """Another network of the same shapes.

    Each tensor repeats a value, to take no space on disk.
    """
    values = {
        name: t.shape[1:].numel() ** -1
        if t.ndim > 1
        else float("bias" not in name and "mean" not in name)
        for name, t in weights.items()
    }
    return {n: torch.tensor(values[n]).to(t.dtype).expand(t.shape) for n, t in weights.items()}


def linear(name: str, *shape: int) -> Weights:
    return {f"{name}.weight": torch.ones(shape), f"{name}.bias": torch.ones(shape[0])}


def numbered(weights: Weights, first_layer: int = 4) -> Weights:
    """The names that nn.Sequential gives to the children of a network."""
    numbers = {"conv1": "0", "bn1": "1"}
    numbers |= {f"layer{i + 1}": str(first_layer + i) for i in range(4)}
    return {
        ".".join([numbers[name.split(".")[0]], *name.split(".")[1:]]): tensor
        for name, tensor in weights.items()
    }


def detectron2_names(weights: Weights) -> Weights:
    """Return the names that MoCo's script uses, also with a head."""
    renamed = {}
    for name, tensor in weights.items():
        name = name if "layer" in name else f"stem.{name}"
        for i in (1, 2, 3, 4):
            name = name.replace(f"layer{i}", f"res{i + 1}").replace(f"bn{i}", f"conv{i}.norm")
        name = name.replace("downsample.0", "shortcut").replace("downsample.1", "shortcut.norm")
        renamed[name] = tensor
    return renamed


def read(content: bytes, path: Path) -> Contents:
    path.write_bytes(content)
    return read_file(path)


def load(content: object, path: Path) -> Encoder:
    torch.save(content, path)
    return load_backbone(path)


def refuse(content: object, path: Path, *args: str) -> None:
    """Assert that a file is refused with its path and this text."""
    with pytest.raises(BackboneError) as error:
        load(content, path)
    for arg in (str(path), *args):
        assert arg in str(error.value)
