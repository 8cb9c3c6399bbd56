"""Proof that an encoder's weights arrived: each matters, and plain functions agree where they can.

A second forward pass in plain functions exists for Vision Transformers (Dosovitskiy et al.,
ICLR 2021, arXiv:2010.11929) and ConvNeXts (Liu et al., CVPR 2022, arXiv:2201.03545) under the names
of timm, which DINO, DINOv2, DeiT and MAE share, of torchvision and of transformers. It reads the
tensors and shares no code with these.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Literal

import torch
import torch.nn.functional as F
import yaml
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from transfer.convert.proof import TOLERANCE
from transfer.encoders.sources import copied

Grade = Literal["outputs", "values"]
GRADES: dict[Grade, str] = {
    "outputs": "outputs: a second forward pass in plain functions gives the same features",
    "values": "values: names, shapes and values are the file's; no second forward pass knows it",
}
"""How far it is proven that the weights arrived, in words."""
HEAD_DIM = {1280: 80}
"""Channels of an attention head by the width of a Vision Transformer: 64 but in ViT-H."""
EPS = 1e-6
"""Epsilon of their layer norms."""
RENAMED: dict[str, dict[str, str]] = yaml.safe_load(
    Path(__file__).with_name("names.yaml").read_text(encoding="utf-8")
)
"""Parts of other libraries' names, in order, and timm's, by a name that tells the library."""

Weights = Mapping[str, Tensor]


def prove(
    network: nn.Module, images: Tensor, features: Tensor, pool: str
) -> tuple[Grade, list[str]]:
    """Return the grade of proof of a network in eval mode, and notes.

    features: those of two different images (2, C).
    """
    notes = []
    if idle := tensors_without_effect(network, images):
        notes.append(f"{len(idle)} tensors do not change the features: {', '.join(idle[:4])}")
    with torch.inference_mode():
        plain = plain_features(network.get_submodule("network").state_dict(), images, pool)
    if plain is None:
        return "values", notes
    apart = ((plain - features).abs().max() / features.abs().max()).item()
    if apart <= TOLERANCE:
        return "outputs", notes
    notes.append(
        f"plain functions of this kind of network differ by {apart:.1e}: it is a variant of it"
    )
    return "values", notes


@torch.inference_mode(False)
@torch.enable_grad()
def tensors_without_effect(network: nn.Module, images: Tensor) -> list[str]:
    """Return the names of floating-point tensors that do not change the features.

    The gradient of a random projection of the features tells, running statistics included; the
    bias of an attention's keys, for example, cancels in its softmax.
    """
    probe = copied(network)
    values: dict[str, Tensor] = {
        name: parameter.requires_grad_()
        for name, parameter in probe.named_parameters()
        if parameter.is_floating_point()
    }
    for name, norm in probe.named_modules():
        if isinstance(norm, _BatchNorm) and norm.running_mean is not None:
            for kind in ("running_mean", "running_var"):
                values[f"{name}.{kind}"] = getattr(norm, kind).requires_grad_(True)
            setattr(norm, "forward", partial(_normalized, norm=norm))  # noqa: B010
    features = probe(images.clone())  # which may be an inference tensor
    if not features.requires_grad:  # no parameters, or a forward function without gradients
        return []
    generator = torch.Generator().manual_seed(1)
    weights = torch.randn(features.shape, generator=generator, dtype=torch.float32)
    total = (features * weights).sum()
    gradients = torch.autograd.grad(total, list(values.values()), allow_unused=True)
    # beside rounding, a gradient of exactly zero is none
    return [
        name.removeprefix("network.")
        for (name, tensor), gradient in zip(values.items(), gradients, strict=True)
        if gradient is None or not (gradient != 0).any()
    ]


def _normalized(x: Tensor, norm: _BatchNorm) -> Tensor:
    """Return x (n, C, ...) normalized by running statistics, differentiable in these."""
    shape = (1, -1, *[1] * (x.ndim - 2))
    mean, variance = (norm.get_buffer(f"running_{kind}").view(shape) for kind in ("mean", "var"))
    centered = (x - mean) * (variance + norm.eps).rsqrt()
    if not norm.affine:
        return centered
    return centered * norm.weight.view(shape) + norm.bias.view(shape)


def plain_features(weights: Weights, images: Tensor, pool: str) -> Tensor | None:
    """Return features (n, C) by plain functions; None for a network that they do not know."""
    weights = under_timm_names(weights)
    if "cls_token" in weights and "blocks.0.attn.qkv.weight" in weights:
        if not _known_vit(weights):
            return None
        layers = _vit(weights, images)
        tokens = layers[-1]
        prefix = 1 + weights["reg_token"].shape[1] if "reg_token" in weights else 1
        patches = tokens[:, prefix:].mean(dim=1)
        parts = {"": tokens[:, 0], "cls": tokens[:, 0], "mean": tokens.mean(dim=1)}
        parts |= {"patch-mean": patches, "cls+mean": torch.cat([tokens[:, 0], patches], dim=1)}
        four = torch.cat([layer[:, 0] for layer in layers[-4:]], dim=1)
        parts |= {"cls-of-last-4": four, "cls-of-last-4+mean": torch.cat([four, patches], dim=1)}
        return parts[pool]
    fc1 = weights.get("stages.0.blocks.0.mlp.fc1.weight")
    if "stem.1.weight" in weights and fc1 is not None and fc1.ndim == 2:
        maps = _convnext(weights, images)
        means = maps.mean(dim=(2, 3))
        return means if pool else _layer_norm(means, weights, "head.norm")
    return None


def under_timm_names(weights: Weights) -> Weights:
    """Return the tensors of a ViT or a ConvNeXt of another library under timm's names."""
    parts = next((parts for name, parts in RENAMED.items() if name in weights), {})
    renamed: dict[str, Tensor] = {}
    for name, tensor in weights.items():
        for part, its in parts.items():
            name = re.sub(part, its, name)
        renamed[name] = tensor.flatten() if name.endswith(".gamma") else tensor
    if parts:
        renamed.pop("embeddings.mask_token", None)  # which replaces patches in training
    for name in [name for name in renamed if ".attention.q_proj." in name]:
        three = [name.replace("q_proj", f"{one}_proj") for one in "qkv"]
        if all(one in renamed for one in three):
            joined = name.replace("attention.q_proj", "attn.qkv")
            renamed[joined] = torch.cat([renamed.pop(one) for one in three])
    return renamed


def _known_vit(weights: Weights) -> bool:
    """Return whether these functions know every part of the transformer."""
    norms = {f"{part}.{kind}" for part in ("norm1", "norm2") for kind in ("weight", "bias")}
    linears = ("attn.qkv", "attn.proj", "mlp.fc1", "mlp.fc2")
    block = norms | {f"{part}.{kind}" for part in linears for kind in ("weight", "bias")}
    block |= {"ls1.gamma", "ls2.gamma"}
    stem = {"cls_token", "pos_embed", "reg_token", "patch_embed.proj.weight"}
    stem |= {"patch_embed.proj.bias", "norm.weight", "norm.bias"}
    parts = (name.split(".", 2) for name in weights)
    return all(p[2] in block if p[0] == "blocks" else ".".join(p) in stem for p in parts)


def _vit(weights: Weights, images: Tensor) -> list[Tensor]:
    """Return the normalized tokens (n, T, C) after each block: class token, registers, patches."""
    layers = []
    kernel = weights["patch_embed.proj.weight"]
    patches = F.conv2d(images, kernel, weights["patch_embed.proj.bias"], stride=kernel.shape[-2:])
    x, cls = patches.flatten(2).transpose(1, 2), weights["cls_token"]
    positions = weights["pos_embed"]
    if positions.shape[1] > x.shape[1]:  # else only the patches have a position
        cls, positions = cls + positions[:, :1], positions[:, 1:]
    start = [cls, *([weights["reg_token"]] if "reg_token" in weights else [])]
    x = torch.cat([*(tokens.expand(len(x), -1, -1) for tokens in start), x + positions], dim=1)
    depth = 1 + max(int(name.split(".")[1]) for name in weights if name.startswith("blocks."))
    for number in range(depth):
        block = {
            name.removeprefix(f"blocks.{number}."): tensor
            for name, tensor in weights.items()
            if name.startswith(f"blocks.{number}.")
        }
        x = x + _attention(_layer_norm(x, block, "norm1"), block) * block.get("ls1.gamma", 1)
        hidden = F.gelu(_linear(_layer_norm(x, block, "norm2"), block, "mlp.fc1"))
        x = x + _linear(hidden, block, "mlp.fc2") * block.get("ls2.gamma", 1)
        layers.append(_layer_norm(x, weights, "norm"))
    return layers


def _attention(x: Tensor, block: Weights) -> Tensor:
    n, length, width = x.shape
    dim = HEAD_DIM.get(width, 64)
    qkv = _linear(x, block, "attn.qkv").view(n, length, 3, width // dim, dim)
    q, k, v = qkv.permute(2, 0, 3, 1, 4)
    share = (q @ k.transpose(-2, -1) / dim**0.5).softmax(dim=-1)
    return _linear((share @ v).transpose(1, 2).reshape(n, length, width), block, "attn.proj")


def _convnext(weights: Weights, images: Tensor) -> Tensor:
    """Return the maps (n, C, H, W) of the last stage of a ConvNeXt."""
    x = F.conv2d(images, weights["stem.0.weight"], weights["stem.0.bias"], stride=4)
    x = _layer_norm(x, weights, "stem.1")
    for stage in range(4):
        below = f"stages.{stage}."
        if f"{below}downsample.1.weight" in weights:
            x = _layer_norm(x, weights, f"{below}downsample.0")
            kernel = weights[f"{below}downsample.1.weight"]
            x = F.conv2d(x, kernel, weights[f"{below}downsample.1.bias"], stride=2)
        depth = sum(n.startswith(f"{below}blocks.") and n.endswith("conv_dw.bias") for n in weights)
        for number in range(depth):
            start = f"{below}blocks.{number}."
            block = {n.removeprefix(start): t for n, t in weights.items() if n.startswith(start)}
            y = F.conv2d(
                x, block["conv_dw.weight"], block["conv_dw.bias"], padding=3, groups=x.shape[1]
            )
            y = _layer_norm(y, block, "norm").permute(0, 2, 3, 1)
            y = _linear(F.gelu(_linear(y, block, "mlp.fc1")), block, "mlp.fc2")
            x = x + (y * block.get("gamma", 1)).permute(0, 3, 1, 2)
    return x


def _layer_norm(x: Tensor, weights: Weights, name: str) -> Tensor:
    """Normalize over channels, which are last, or the second of maps (n, C, H, W)."""
    scale, shift = weights[f"{name}.weight"], weights[f"{name}.bias"]
    if x.ndim == 4:
        return F.layer_norm(x.permute(0, 2, 3, 1), scale.shape, scale, shift, EPS).permute(
            0, 3, 1, 2
        )
    return F.layer_norm(x, scale.shape, scale, shift, EPS)


def _linear(x: Tensor, weights: Weights, name: str) -> Tensor:
    return F.linear(x, weights[f"{name}.weight"], weights.get(f"{name}.bias"))
