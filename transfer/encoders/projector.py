"""The projector of a backbone, for tasks that look at embeddings.

It stands in encoder.pt, which pre-training writes beside backbone.pt, or is the head that MoCo's
checkpoints, and JCL's, hold behind the query encoder.
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
from transfer.encoders.verify import plain_floats

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
            normalize(head.network(features[:, head.start : head.stop]).float(), dim=1)
            for head in self.heads
        ]
        # h unit rows side by side have length sqrt(h)
        return torch.cat(rows, dim=1) / math.sqrt(len(rows))

    def to(self, device: torch.device) -> Projector:
        """Move the networks to a device; return the projector."""
        for head in self.heads:
            head.network.to(device)
        return self


def why_no_projector(backbone: Encoder) -> str:
    """Return why there is no projector for a backbone; empty if there is one."""
    try:
        load_projector(backbone)
    except BackboneError as error:
        return str(error)
    return ""


def load_projector(backbone: Encoder) -> Projector:
    """Return the projector in the backbone's file or in encoder.pt beside it.

    BackboneError, with what was found and expected, if there is none or if it belongs to another
    backbone. Nothing of the file is executed.
    """
    path = Path(backbone.file)
    if not backbone.file:
        raise BackboneError(
            f"{backbone.name} has no projector, which embeddings need: it is a random "
            f"initialization, a part of a network's heads or an encoder. Give the encoder.pt of "
            f"a pre-training run, or look at features"
        )
    try:
        contents = read_file(path)
        if contents.own is None:
            return _query_head(contents, backbone, path.name)
        if contents.own["format"] == FORMAT:
            path, contents = _encoder_beside(path, backbone)
        heads = read_heads(contents.own or {}, backbone.feature_dim)
    except BackboneError as error:
        raise BackboneError(f"{path}: {error}") from error
    return Projector(heads, f"{path.name}: {len(heads)} projector{'s' * (len(heads) > 1)}")


def _encoder_beside(path: Path, backbone: Encoder) -> tuple[Path, Contents]:
    """Return path and contents of the encoder file beside a backbone file."""
    beside = path.with_name(ENCODER_FILE)
    if not beside.exists():
        raise BackboneError(
            f"a backbone without its projector, which embeddings need, and no {ENCODER_FILE} lies "
            f"beside it. Start the finished pre-training run once more, which writes it; methods "
            f"without a projector (supervised, random) have none: look at features"
        )
    other = load(beside)
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
    heads = []
    for place, item in enumerate(described):
        match item:
            case {"features": [int() as start, int() as stop], "layers": list() as layers} if (
                0 <= start < stop <= feature_dim and layers
            ):
                heads.append(_head(start, stop, layers, f"projectors.{place}.layers"))
            case _:
                raise BackboneError(
                    f"projector {place} is {str(item)[:200]}; expected its features, [start, stop) "
                    f"of {feature_dim}, and its layers: export it again"
                )
    return tuple(heads)


def _head(start: int, stop: int, layers: Sequence[Any], name: str) -> Head:
    """Return the projector of these layers, which must fit each other and the features."""
    modules: list[nn.Module] = []
    width = stop - start
    for number, layer in enumerate(layers):
        modules.append(_module(layer, f"{name}.{number}", width))
        width = getattr(modules[-1], "out_features", width)
    return Head(start, stop, nn.Sequential(*modules).eval().requires_grad_(False), width)


def _module(layer: Any, name: str, width: int) -> nn.Module:
    """Return a layer for rows (n, width); a batch norm may lack weight and bias."""
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
    for key, own in module.state_dict().items():
        stored = layer.get(key)
        if stored is None and isinstance(module, nn.BatchNorm1d) and "running" not in key:
            continue
        found = tuple(stored.shape) if isinstance(stored, Tensor) else stored
        if found != tuple(own.shape):
            raise BackboneError(
                f"{name}.{key} is {str(found)[:100]}, expected a tensor of shape "
                f"{tuple(own.shape)}: this projector does not belong to these features"
            )
        own.copy_(plain_floats(f"{name}.{key}", stored))
        if key == "running_var" and bool((own < 0).any()):
            raise BackboneError(f"{name} has a negative running_var")
    return module


def _query_head(contents: Contents, backbone: Encoder, file: str) -> Projector:
    """Return the head behind the query encoder of a foreign file."""
    found: dict[str, dict[str, Tensor]] = {}
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
    head, name = found[prefix], prefix.removesuffix(".")
    mean = contents.tensors.get(f"{name.removesuffix('fc')}bn1.running_mean")
    own = backbone.state_dict["bn1.running_mean"]
    if mean is None or not own.equal(plain_floats(f"the norm beside {prefix}", mean)):
        raise BackboneError(
            f"its head {prefix} belongs to the query encoder, and {backbone.source} is another "
            f"network: leave out --checkpoint-key, or look at features"
        )
    linear = [
        {"kind": "linear", "weight": head[f"{layer}weight"], "bias": head[f"{layer}bias"]}
        for layer in QUERY_HEADS[frozenset(head)]
    ]
    layers = [each for layer in linear for each in ({"kind": "relu"}, layer)][1:]
    return Projector((_head(0, backbone.feature_dim, layers, name),), f"{file}: head {prefix}")
