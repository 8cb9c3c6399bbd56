"""Proof that a conversion kept the function: two independent implementations give equal features.

One is torchvision's network with the converted weights. The other is the forward pass below, which
uses the file's tensors under the file's own names and shares no code with the conversion. It
infers stages, blocks, norms and shortcuts from the order of the numbers in the names and from the
shapes. A swapped, stale or misplaced tensor makes the two differ.

He et al., CVPR 2016; the 3x3 convolution of a bottleneck has stride 2, as in torchvision.
"""

import re
from collections.abc import Mapping

import torch
import torch.nn.functional as F
from torch import Tensor
from torchvision.models import ResNet

from transfer.convert.architectures import BackboneError, Stem

TOLERANCE = 1e-4
"""Largest allowed difference, relative to the largest value; rounding gives about 1e-6."""

MIN_RESPONSE = 8 * torch.finfo(torch.float32).eps
"""Smallest difference between the features of two images, relative to the largest feature."""

Weights = Mapping[str, Tensor]


def prove(network: ResNet, raw: Weights, stem: Stem | None = None) -> float:
    """Return the largest relative difference of the features; BackboneError above TOLERANCE.

    network: converted weights, in eval mode. raw: the backbone's tensors in float32, under the
    file's names without the prefix. stem: by the size of the first kernel if not given.
    """
    images = fixed_images()
    with torch.inference_mode():
        expected, found = raw_features(raw, images, stem), network(images)
    for features in (expected, found):
        check_response(features)
    relative: float = (expected - found).abs().max().item() / expected.abs().max().item()
    if relative > TOLERANCE:
        raise BackboneError(
            f"the converted network's features differ from those of the file's tensors by "
            f"{relative:.1e} of their scale, above {TOLERANCE:.0e}: the conversion "
            "would change the network; please report the file's layout"
        )
    return relative


def check_response(features: Tensor) -> None:
    """Raise BackboneError unless the features (2, C) of two images are finite and differ."""
    if num_bad := int((~features.isfinite()).sum()):
        raise BackboneError(
            f"{num_bad} of {features.numel()} features on fixed images are not finite; expected a "
            f"trained network"
        )
    first, second = features
    if (first - second).abs().max() <= MIN_RESPONSE * features.abs().max():
        raise BackboneError(
            f"the features do not depend on the image, all are within {features.abs().max():.3g}: "
            f"the weights are zero or the training collapsed; take an earlier checkpoint"
        )


def fixed_images(size_px: int = 64) -> Tensor:
    """Return normalized noise (2, 3, size_px, size_px), the same at every call."""
    generator = torch.Generator().manual_seed(0)
    return torch.randn(2, 3, size_px, size_px, generator=generator, dtype=torch.float32)


def raw_features(raw: Weights, images: Tensor, stem_kind: Stem | None = None) -> Tensor:
    """Return features (n, C) from the raw tensors of a ResNet, under the names of any scheme."""
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
    """Return the stem and the blocks of four stages, by the two numbers that begin their names."""
    stem: dict[str, Tensor] = {}
    blocks: dict[tuple[int, int], dict[str, Tensor]] = {}
    for name, tensor in raw.items():
        if place := re.match(r"[a-z]*(\d+)\.(\d+)\.", name):
            key = int(place[1]), int(place[2])
            blocks.setdefault(key, {})[name[place.end() :]] = tensor
        else:
            stem[name] = tensor
    numbers = sorted({stage for stage, _ in blocks})
    return stem, [[blocks[key] for key in sorted(blocks) if key[0] == stage] for stage in numbers]


def _block(x: Tensor, block: Weights, *, stride: int) -> Tensor:
    """Apply a basic block or bottleneck, (n, C, H, W) -> (n, C', H / stride, W / stride)."""
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
