"""The projector of a backbone, for tasks that use embeddings.

It is in encoder.pt, which pre-training writes next to backbone.pt, or it is the head of the query
encoder in checkpoints of MoCo and JCL.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch.nn.utils import skip_init

from transfer.encoders.architectures import BackboneError
from transfer.encoders.encoder import Encoder
from transfer.encoders.files import Contents, read_file
from transfer.encoders.opening import FORMAT, load
from transfer.encoders.verify import to_finite_float32

ENCODER_FILE = "encoder.pt"
"""Name of the file that pre-training writes next to backbone.pt."""

QUERY_HEAD = re.compile(r"(?P<prefix>(.*\.)?encoder_q\.fc\.)(?P<layer>(\d+\.)?(weight|bias))")
"""Tensor names of MoCo's query head, which replaces torchvision's fc."""

QUERY_HEADS: Mapping[frozenset[str], tuple[str, ...]] = {
    frozenset({"weight", "bias"}): ("",),
    frozenset({"0.weight", "0.bias", "2.weight", "2.bias"}): ("0.", "2."),
}
"""Tensors of MoCo's heads (v1, v2) -> linear layers, with ReLU between."""


@dataclass(frozen=True, eq=False)
class Head:
    """One projector and the feature columns that it reads."""

    start: int
    stop: int
    """Columns [start, stop) of the features."""
    network: nn.Sequential
    """(n, stop - start) -> (n, d), in eval mode, without gradients."""
    embedding_dim: int
    """d."""


@dataclass(frozen=True, eq=False)
class Projector:
    """The projectors of a backbone, one per head."""

    heads: tuple[Head, ...]
    source: str
    """Readable source, such as "encoder.pt: 1 projector"."""

    @property
    def embedding_dim(self) -> int:
        """Embedding dimension, summed over all heads."""
        return sum(head.embedding_dim for head in self.heads)

    @torch.no_grad()
    def embeddings(self, features: Tensor) -> Tensor:
        """Return unit-length embeddings (n, h * d), float32, of features (n, C).

        The embeddings of the h heads have equal length and are concatenated, so the cosine of two
        embeddings is the mean of the heads' cosines.
        """
        rows = [
            normalize(head.network(features[:, head.start : head.stop]).float(), dim=1)
            for head in self.heads
        ]
        # h concatenated unit vectors have length sqrt(h)
        return torch.cat(rows, dim=1) / math.sqrt(len(rows))

    def to(self, device: torch.device) -> Projector:
        """Move the networks to a device; return the projector."""
        for head in self.heads:
            head.network.to(device)
        return self


def missing_projector_reason(backbone: Encoder) -> str:
    """Return why a backbone lacks a projector; empty if it has one."""
    try:
        load_projector(backbone)
    except BackboneError as error:
        return str(error)
    return ""


def load_projector(backbone: Encoder) -> Projector:
    """Return the projector of a backbone.

    It is in the backbone's file or in the encoder.pt next to it. BackboneError if the backbone has
    no projector or if the projector belongs to another backbone. No code of the file is executed.
    """
    path = Path(backbone.file)
    if not backbone.file:
        raise BackboneError(
            f"{backbone.name} has no projector, which embeddings need: it is a random "
            f"initialization, a subset of a network's heads or an encoder. Pass the encoder.pt of "
            f"a pre-training run, or use features"
        )
    try:
        contents = read_file(path)
        if contents.own_fields is None:
            return _query_head(contents, backbone, path.name)
        if contents.own_fields["format"] == FORMAT:
            path, contents = _encoder_file(path, backbone)
        heads = read_heads(contents.own_fields or {}, backbone.feature_dim)
    except BackboneError as error:
        raise BackboneError(f"{path}: {error}") from error
    projectors = "1 projector" if len(heads) == 1 else f"{len(heads)} projectors"
    return Projector(heads, f"{path.name}: {projectors}")


def _encoder_file(path: Path, backbone: Encoder) -> tuple[Path, Contents]:
    """Return path and contents of the encoder file of a backbone file."""
    encoder_path = path.with_name(ENCODER_FILE)
    if not encoder_path.exists():
        raise BackboneError(
            f"a backbone without its projector, which embeddings need, and without "
            f"{ENCODER_FILE} next to it. Start the finished pre-training run again, which writes "
            f"this file. Methods without a projector (supervised, random) need features instead"
        )
    encoder = load(encoder_path)
    if encoder.sha256 != backbone.sha256:
        raise BackboneError(
            f"{encoder_path} contains another backbone, so its projector does not belong to this "
            f"one; pass --ckpt {encoder_path}, or the backbone of the same run"
        )
    return encoder_path, read_file(encoder_path)


def read_heads(tree: Mapping[str, Any], feature_dim: int) -> tuple[Head, ...]:
    """Return the projectors of an encoder file.

    BackboneError if a field is not as expected.
    """
    projectors = tree.get("projectors")
    if not isinstance(projectors, list) or not projectors:
        raise BackboneError(
            f"projectors is {str(projectors)[:100]}; expected a list with the layers of each head: "
            f"export it again"
        )
    heads = []
    for index, item in enumerate(projectors):
        match item:
            case {"features": [int() as start, int() as stop], "layers": list() as layers} if (
                0 <= start < stop <= feature_dim and layers
            ):
                heads.append(_head(start, stop, layers, f"projectors.{index}.layers"))
            case _:
                raise BackboneError(
                    f"projector {index} is {str(item)[:200]}; expected its features, [start, stop) "
                    f"of {feature_dim}, and its layers: export it again"
                )
    return tuple(heads)


def _head(start: int, stop: int, layers: Sequence[Any], name: str) -> Head:
    """Return the projector of these layers.

    BackboneError if they do not fit each other and the features.
    """
    modules: list[nn.Module] = []
    width = stop - start
    for number, layer in enumerate(layers):
        modules.append(_module(layer, f"{name}.{number}", width))
        width = getattr(modules[-1], "out_features", width)
    return Head(start, stop, nn.Sequential(*modules).eval().requires_grad_(False), width)


def _module(layer: Any, name: str, width: int) -> nn.Module:
    """Return a layer for inputs (n, width).

    A batch norm may lack weight and bias.
    """
    module: nn.Module
    match layer:
        case {"kind": "relu"}:
            return nn.ReLU()
        case {"kind": "gelu"}:
            return nn.GELU()
        case {"kind": "linear", "weight": Tensor() as weight} if weight.shape:
            has_bias = layer.get("bias") is not None
            module = skip_init(nn.Linear, width, weight.shape[0], bias=has_bias)
        case {"kind": "batch_norm", "eps": float() as eps} if eps > 0:
            module = nn.BatchNorm1d(width, eps=eps)
        case _:
            raise BackboneError(
                f"{name} is {str(layer)[:200]}; expected a linear layer, batch_norm with a "
                f"positive eps, relu or gelu: export it again with this version"
            )
    for key, parameter in module.state_dict().items():
        stored = layer.get(key)
        if stored is None and isinstance(module, nn.BatchNorm1d) and "running" not in key:
            continue
        stored_shape = tuple(stored.shape) if isinstance(stored, Tensor) else stored
        if stored_shape != tuple(parameter.shape):
            raise BackboneError(
                f"{name}.{key} is {str(stored_shape)[:100]}, expected a tensor of shape "
                f"{tuple(parameter.shape)}: this projector does not belong to these features"
            )
        parameter.copy_(to_finite_float32(f"{name}.{key}", stored))
        if key == "running_var" and bool((parameter < 0).any()):
            raise BackboneError(f"{name} has a negative running_var")
    return module


def _query_head(contents: Contents, backbone: Encoder, file: str) -> Projector:
    """Return the head of the query encoder of a third-party checkpoint."""
    heads: dict[str, dict[str, Tensor]] = {}
    for name, tensor in contents.tensors.items():
        if match := QUERY_HEAD.fullmatch(name):
            heads.setdefault(match["prefix"], {})[match["layer"]] = tensor
    known_prefixes = [prefix for prefix, head in heads.items() if frozenset(head) in QUERY_HEADS]
    if len(known_prefixes) != 1:
        names = ", ".join(f"{prefix}{{{', '.join(head)}}}" for prefix, head in heads.items())
        raise BackboneError(
            f"it has no known projector, which embeddings need: found {names or 'no head'} in "
            f"encoder_q; expected one with fc.weight and fc.bias, or fc.0 and fc.2 (MoCo v1 "
            f"and v2, JCL). Use features instead"
        )
    (prefix,) = known_prefixes
    head, name = heads[prefix], prefix.removesuffix(".")
    mean = contents.tensors.get(f"{name.removesuffix('fc')}bn1.running_mean")
    backbone_mean = backbone.state_dict["bn1.running_mean"]
    if mean is None or not backbone_mean.equal(
        to_finite_float32(f"the norm next to {prefix}", mean)
    ):
        raise BackboneError(
            f"its head {prefix} belongs to the query encoder, and {backbone.source} is another "
            f"network: leave out --checkpoint-key, or use features"
        )
    linear = [
        {"kind": "linear", "weight": head[f"{layer}weight"], "bias": head[f"{layer}bias"]}
        for layer in QUERY_HEADS[frozenset(head)]
    ]
    layers = linear[:1]
    for layer in linear[1:]:
        layers += [{"kind": "relu"}, layer]
    return Projector((_head(0, backbone.feature_dim, layers, name),), f"{file}: head {prefix}")
