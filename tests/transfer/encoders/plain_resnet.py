"""A second forward pass of ResNets, in plain functions, under the names of any scheme.

It uses a file's tensors under the file's own names and shares no code with the loader. It infers
stages, blocks, norms and shortcuts from the order of the numbers in the names and from the shapes.

He et al., CVPR 2016; the 3x3 convolution of a bottleneck has stride 2, as in torchvision.
"""

import re
from collections.abc import Mapping

import torch.nn.functional as F
from torch import Tensor

from transfer.encoders.architectures import Stem

Weights = Mapping[str, Tensor]


def plain_features(raw: Weights, images: Tensor, stem_kind: Stem | None = None) -> Tensor:
    """Return features (n, C) from a ResNet's tensors under any names."""
    stem, stages = _split(raw)
    (kernel,) = (tensor for tensor in stem.values() if tensor.ndim == 4)
    (norm,) = _norms(stem)
    large = kernel.shape[-1] == 7
    padding = 3 if large else 2 if stem_kind == "cifar-pad2" else 1
    x = F.conv2d(images, kernel, stride=2 if large else 1, padding=padding)
    x = F.relu(_batch_norm(x, stem, norm))
    if stem_kind == "cifar-maxpool" or (large and stem_kind != "imagenet-nopool"):
        x = F.max_pool2d(x, kernel_size=3, stride=2, padding=1)
    for stage, blocks in enumerate(stages):
        for position, block in enumerate(blocks):
            x = _block(x, block, stride=2 if stage > 0 and position == 0 else 1)
    return x.mean(dim=(2, 3))


def _split(raw: Weights) -> tuple[dict[str, Tensor], list[list[dict[str, Tensor]]]]:
    """Return the stem and the blocks of four stages.

    Keys are the two numbers that begin the names.
    """
    stem: dict[str, Tensor] = {}
    blocks: dict[tuple[int, int], dict[str, Tensor]] = {}
    for name, tensor in raw.items():
        if location := re.match(r"[a-z]*(\d+)\.(\d+)\.", name):
            key = int(location[1]), int(location[2])
            blocks.setdefault(key, {})[name[location.end() :]] = tensor
        else:
            stem[name] = tensor
    numbers = sorted({stage for stage, _ in blocks})
    return stem, [[blocks[key] for key in sorted(blocks) if key[0] == stage] for stage in numbers]


def _block(x: Tensor, block: Weights, *, stride: int) -> Tensor:
    """Apply a basic block or bottleneck.

    (n, C, H, W) -> (n, C', H / stride, W / stride).
    """
    main = sorted(name for name in block if re.fullmatch(r"conv\d\.weight", name))
    strided = main[-2]  # the first of two convolutions, the second of three
    norms = _norms(block)
    y = x
    for name in main:
        number = name[4]
        kernel = block[name]
        y = F.conv2d(
            y,
            kernel,
            stride=stride if name == strided else 1,
            padding=kernel.shape[-1] // 2,
            groups=y.shape[1] // kernel.shape[1],
        )
        (norm,) = norms & {f"bn{number}", f"conv{number}.norm"}
        norms.remove(norm)
        y = _batch_norm(y, block, norm)
        if name != main[-1]:
            y = F.relu(y)
    for kernel in (block[name] for name in block if block[name].ndim == 4 and name not in main):
        (norm,) = norms
        x = _batch_norm(F.conv2d(x, kernel, stride=stride), block, norm)
    return F.relu(x + y)


def _norms(weights: Weights) -> set[str]:
    """Return the names of the modules that hold running statistics."""
    return {name.removesuffix(".running_mean") for name in weights if name.endswith("running_mean")}


def _batch_norm(x: Tensor, weights: Weights, name: str) -> Tensor:
    mean, variance, scale, shift = (
        weights[f"{name}.{kind}"] for kind in ("running_mean", "running_var", "weight", "bias")
    )
    return F.batch_norm(x, mean, variance, scale, shift)
