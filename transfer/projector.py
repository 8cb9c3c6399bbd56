"""The projector of a backbone, for tasks that look at embeddings.

It stands in encoder.pt, which pre-training writes beside backbone.pt, or is the head that MoCo's
checkpoints, and JCL's, hold behind the query encoder.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from transfer.backbone import ENCODER_FORMAT, FORMAT, Backbone, BackboneError, load_backbone
from transfer.convert.from_public import plain_floats
from transfer.convert.read_file import Contents, StoredTensor, read_file

ENCODER_FILE = "encoder.pt"
"""Name of the file that pre-training writes beside backbone.pt."""

QUERY_HEAD = re.compile(r"(?P<prefix>(.*\.)?encoder_q\.fc\.)(?P<layer>(\d+\.)?(weight|bias))")
"""Names of the head of MoCo's query encoder, which is an fc in place of torchvision's."""

QUERY_HEADS: Mapping[frozenset[str], tuple[str, ...]] = {
    frozenset({"weight", "bias"}): ("",),
    frozenset({"0.weight", "0.bias", "2.weight", "2.bias"}): ("0.", "2."),
}
"""Tensors of the head of MoCo v1 and of v2 -> their linear layers, with a ReLU between two."""


@dataclass(frozen=True, eq=False)
class Head:
    """One projector, and the features that it reads."""

    start: int
    stop: int
    """Columns of the features, from `start` to before `stop`."""
    network: nn.Sequential
    """(n, stop - start) -> (n, d), in eval mode, without gradients."""
    embedding_dim: int
    """d."""


@dataclass(frozen=True, eq=False)
class Projector:
    """The projectors of a backbone, one for each of its heads."""

    heads: tuple[Head, ...]
    source: str
    """A line for people, such as "encoder.pt: 1 projector"."""

    @property
    def embedding_dim(self) -> int:
        """Embedding dimension, the sum over all heads."""
        return sum(head.embedding_dim for head in self.heads)

    @torch.no_grad()
    def embeddings(self, features: Tensor) -> Tensor:
        """Return embeddings (n, h * d) of unit length of features (n, C), float32.

        The h heads stand side by side, each with rows of equal length, so that the cosine of two
        embeddings is the mean of the heads' cosines.
        """
        rows = [
            _unit_rows(head.network(features[:, head.start : head.stop])) for head in self.heads
        ]
        # h unit rows side by side have length sqrt(h)
        return torch.cat(rows, dim=1) / math.sqrt(len(rows))

    def to(self, device: torch.device) -> Projector:
        """Move the networks to a device; return the projector."""
        for head in self.heads:
            head.network.to(device)
        return self


def why_no_projector(backbone: Backbone) -> str:
    """Return why there is no projector for a backbone; empty if there is one."""
    try:
        load_projector(backbone)
    except BackboneError as error:
        return str(error)
    return ""


def load_projector(backbone: Backbone) -> Projector:
    """Return the projector in the backbone's file or in encoder.pt beside it.

    BackboneError, with what was found and expected, if there is none or if it belongs to another
    backbone. Nothing of the file is executed.
    """
    path = Path(backbone.file)
    if not backbone.file:
        raise BackboneError(
            f"{backbone.name} has no projector, which embeddings need: it is a random "
            f"initialization or a part of a network's heads. Give the encoder.pt of a pre-training "
            f"run, or look at features"
        )
    try:
        contents = read_file(path)
        form = contents.tree.get("format") if isinstance(contents.tree, dict) else None
        if form == FORMAT:
            path, contents = _encoder_beside(path, backbone)
        elif form != ENCODER_FORMAT:
            return _query_head(contents, backbone, path.name)
        heads = read_heads(contents.tree, backbone.feature_dim)
    except BackboneError as error:
        message = str(error)
        raise BackboneError(
            message if message.startswith(str(path)) else f"{path}: {message}"
        ) from error
    return Projector(heads, f"{path.name}: {len(heads)} projector{'s' * (len(heads) > 1)}")


def _encoder_beside(path: Path, backbone: Backbone) -> tuple[Path, Contents]:
    """Return path and contents of the encoder file beside a backbone file."""
    beside = path.with_name(ENCODER_FILE)
    if not beside.exists():
        raise BackboneError(
            f"a backbone without its projector, which embeddings need, and no {ENCODER_FILE} lies "
            f"beside it. Start the finished pre-training run once more, which writes it; methods "
            f"without a projector (supervised, random) have none: look at features"
        )
    other = load_backbone(beside)
    if other.sha256 != backbone.sha256:
        raise BackboneError(
            f"{beside} beside it holds another backbone, so its projector does not belong to this "
            f"one; give --ckpt {beside}, or the backbone of the same run"
        )
    return beside, read_file(beside)


def read_heads(tree: Mapping[str, Any], feature_dim: int) -> tuple[Head, ...]:
    """Return the projectors of an encoder file; BackboneError if a field is not as expected."""
    described = tree.get("projectors")
    if not isinstance(described, list) or not described:
        raise BackboneError(
            f"projectors is {str(described)[:100]}; expected a list with the layers of each head: "
            f"export it again"
        )
    return tuple(_read_head(item, place, feature_dim) for place, item in enumerate(described))


def _read_head(item: object, place: int, feature_dim: int) -> Head:
    """Return one projector of the file, whose layers must fit each other."""
    match item:
        case {"features": [int() as start, int() as stop], "layers": list() as layers} if (
            0 <= start < stop <= feature_dim and layers
        ):
            pass
        case _:
            raise BackboneError(
                f"projector {place} is {str(item)[:200]}; expected its features, [start, stop) of "
                f"{feature_dim}, and its layers: export it again"
            )
    modules: list[nn.Module] = []
    width = stop - start
    for number, layer in enumerate(layers):
        name = f"projectors.{place}.layers.{number}"
        module, width = _read_layer(layer, name, width)
        modules.append(module)
    return Head(start, stop, _frozen(modules), width)


def _read_layer(layer: Any, name: str, width: int) -> tuple[nn.Module, int]:
    """Return a layer for rows (n, width), and the width of its output."""
    match layer:
        case {"kind": "relu"}:
            return nn.ReLU(), width
        case {"kind": "gelu"}:
            return nn.GELU(), width
        case {"kind": "linear", "weight": StoredTensor() as weight}:
            return _linear(name, weight, _optional(layer, "bias"), width)
        case {
            "kind": "batch_norm",
            "eps": float() as eps,
            "running_mean": StoredTensor(),
            "running_var": StoredTensor(),
        }:
            return _batch_norm(name, layer, eps, width), width
    shown = (
        {
            key: "a tensor" if isinstance(value, StoredTensor) else value
            for key, value in layer.items()
        }
        if isinstance(layer, dict)
        else layer
    )
    raise BackboneError(
        f"{name} is {str(shown)[:200]}; expected a linear layer, batch_norm, relu or gelu with its "
        f"tensors: export it again with this version"
    )


def _optional(layer: Mapping[str, Any], key: str) -> StoredTensor | None:
    """Return a tensor of a layer that may lack it."""
    value = layer.get(key)
    if value is not None and not isinstance(value, StoredTensor):
        raise BackboneError(f"{key} of a layer is {str(value)[:100]}; expected a tensor or nothing")
    return value


def _linear(
    name: str, weight: StoredTensor, bias: StoredTensor | None, width: int
) -> tuple[nn.Linear, int]:
    """Return a linear layer for rows (n, width), and the width of its output."""
    if len(weight.shape) != 2 or weight.shape[1] != width or not weight.shape[0]:
        raise BackboneError(
            f"{name}.weight has shape {weight.shape}, expected (outputs, {width}): this projector "
            f"does not belong to these features"
        )
    outputs = weight.shape[0]
    # meta: no memory and no random draws for weights that are replaced at once
    linear = nn.Linear(width, outputs, bias=bias is not None, device="meta")
    linear.weight = nn.Parameter(plain_floats(f"{name}.weight", weight))
    if bias is not None:
        linear.bias = nn.Parameter(_vector(f"{name}.bias", bias, outputs))
    return linear, outputs


def _batch_norm(name: str, layer: Mapping[str, Any], eps: float, width: int) -> nn.BatchNorm1d:
    """Return a batch norm of rows (n, width) by its running statistics."""
    weight, bias = _optional(layer, "weight"), _optional(layer, "bias")
    norm = nn.BatchNorm1d(width, eps=eps)
    for key in ("running_mean", "running_var"):
        norm.register_buffer(key, _vector(f"{name}.{key}", layer[key], width))
    if norm.running_var is None or bool((norm.running_var < 0).any()) or not eps > 0:
        raise BackboneError(f"{name} has a negative running_var, or an eps of {eps}; expected more")
    if weight is not None:
        norm.weight = nn.Parameter(_vector(f"{name}.weight", weight, width))
    if bias is not None:
        norm.bias = nn.Parameter(_vector(f"{name}.bias", bias, width))
    return norm


def _vector(name: str, stored: StoredTensor, width: int) -> Tensor:
    if stored.shape != (width,):
        raise BackboneError(f"{name} has shape {stored.shape}, expected ({width},)")
    return plain_floats(name, stored)


def _query_head(contents: Contents, backbone: Backbone, file: str) -> Projector:
    """Return the head behind the query encoder of a foreign file."""
    found: dict[str, dict[str, StoredTensor]] = {}
    for name, tensor in contents.tensors.items():
        if match := QUERY_HEAD.fullmatch(name):
            found.setdefault(match["prefix"], {})[match["layer"]] = tensor
    known = [prefix for prefix, head in found.items() if frozenset(head) in QUERY_HEADS]
    if len(known) != 1:
        held = ", ".join(f"{prefix}{{{', '.join(head)}}}" for prefix, head in found.items())
        raise BackboneError(
            f"it has no projector that is known, which embeddings need: found {held or 'no head'} "
            f"behind encoder_q; expected one with fc.weight and fc.bias, or fc.0 and fc.2 (MoCo v1 "
            f"and v2, JCL). Look at features"
        )
    (prefix,) = known
    head, width = found[prefix], backbone.feature_dim
    modules: list[nn.Module] = []
    for layer in QUERY_HEADS[frozenset(head)]:
        name = f"{prefix}{layer}".removesuffix(".")
        linear, width = _linear(name, head[f"{layer}weight"], head[f"{layer}bias"], width)
        modules += [nn.ReLU(), linear] if modules else [linear]
    network = _frozen(modules)
    return Projector((Head(0, backbone.feature_dim, network, width),), f"{file}: head {prefix}")


def _frozen(modules: list[nn.Module]) -> nn.Sequential:
    network = nn.Sequential(*modules).eval()
    network.requires_grad_(False)
    return network


def _unit_rows(rows: Tensor) -> Tensor:
    unit: Tensor = normalize(rows.float(), dim=1)
    return unit
