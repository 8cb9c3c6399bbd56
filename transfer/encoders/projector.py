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
from transfer.encoders.opening import FORMAT
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
    """d, dimension of the embeddings."""


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

    It is in the backbone's file or in the encoder.pt next to it. Raises BackboneError if the
    backbone has no projector or if the projector belongs to another backbone. No code of the file
    is executed.
    """
    path = Path(backbone.file)
    if not backbone.file:
        raise BackboneError(
            f"{backbone.name} has no projector, which embeddings need. Pass the encoder.pt of a "
            f"pre-training run, or use features"
        )
    try:
        contents = read_file(path)
        if contents.own_fields is None:
            return _query_head(contents, backbone, path.name)
        if contents.own_fields["format"] == FORMAT:
            if not path.with_name(ENCODER_FILE).exists():
                raise BackboneError(
                    f"embeddings need its projector, from {ENCODER_FILE} next to it. Start the "
                    f"finished pre-training run again, which writes this file, or use features"
                )
            path = path.with_name(ENCODER_FILE)
            contents = read_file(path)
            for name, tensor in backbone.state_dict.items():
                stored = contents.tensors.get(f"state_dict.{name}")
                if stored is None or not stored.to(tensor.dtype).equal(tensor):
                    raise BackboneError(
                        f"contains another backbone: pass --ckpt {path}, or the one of the same run"
                    )
        heads = read_heads(contents.own_fields or {}, backbone.feature_dim)
    except BackboneError as error:
        raise BackboneError(f"{path}: {error}") from error
    except (LookupError, TypeError, ValueError, RuntimeError) as error:
        reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise BackboneError(f"{path}: its projector cannot be read ({reason})") from error
    projectors = "1 projector" if len(heads) == 1 else f"{len(heads)} projectors"
    return Projector(heads, f"{path.name}: {projectors}")


def read_heads(tree: Mapping[str, Any], feature_dim: int) -> tuple[Head, ...]:
    """Return the projectors of an encoder file.

    Raises LookupError, TypeError, ValueError or RuntimeError if a field is not as expected.
    """
    heads = tuple(
        _head(start, stop, item["layers"])
        for item in tree["projectors"]
        for start, stop in [item["features"]]
    )
    if not heads or any(head.stop > feature_dim for head in heads):
        raise BackboneError(f"its {len(heads)} projectors are not for {feature_dim} features")
    return heads


def _head(start: int, stop: int, layers: Sequence[Mapping[str, Any]]) -> Head:
    """Return the projector of these layers; each is loaded with the width of the one before."""
    modules: list[nn.Module] = []
    width = stop - start
    for layer in layers:
        modules.append(_module(layer, width))
        width = getattr(modules[-1], "out_features", width)
    return Head(start, stop, nn.Sequential(*modules).eval().requires_grad_(False), width)


def _module(layer: Mapping[str, Any], width: int) -> nn.Module:
    """Return a layer for inputs (n, width).

    A batch norm may lack weight and bias.
    """
    kind = layer["kind"]
    stored = {
        key: to_finite_float32(f"{key} of its {kind} layer", value)
        for key, value in layer.items()
        if isinstance(value, Tensor)
    }
    module: nn.Module
    match kind:
        case "relu":
            module = nn.ReLU()
        case "gelu":
            module = nn.GELU()
        case "linear":
            module = skip_init(nn.Linear, width, len(stored["weight"]), bias="bias" in stored)
        case "batch_norm":
            module = nn.BatchNorm1d(width, eps=layer["eps"], affine="weight" in stored)
        case _:
            raise LookupError(f"layer {kind}")
    module.load_state_dict(stored)
    return module


def _query_head(contents: Contents, backbone: Encoder, file: str) -> Projector:
    """Return the head of the query encoder of a third-party checkpoint."""
    heads: dict[str, dict[str, Tensor]] = {}
    for name, tensor in contents.tensors.items():
        if match := QUERY_HEAD.fullmatch(name):
            heads.setdefault(match["prefix"], {})[match["layer"]] = tensor
    prefixes = [prefix for prefix, head in heads.items() if frozenset(head) in QUERY_HEADS]
    if len(prefixes) != 1:
        names = ", ".join(f"{prefix}{{{', '.join(head)}}}" for prefix, head in heads.items())
        raise BackboneError(
            f"it has no known projector, which embeddings need: expected encoder_q.fc of MoCo v1, "
            f"MoCo v2 or JCL, found {names or 'no head'}. Use features instead"
        )
    (prefix,) = prefixes
    head, name = heads[prefix], prefix.removesuffix(".")
    mean = contents.tensors.get(f"{name.removesuffix('fc')}bn1.running_mean")
    backbone_mean = backbone.state_dict["bn1.running_mean"]
    if mean is None or not backbone_mean.equal(mean.to(backbone_mean.dtype)):
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
    return Projector((_head(0, backbone.feature_dim, layers),), f"{file}: head {prefix}")
