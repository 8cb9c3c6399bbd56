"""Check that a backbone in another network computes the same features.

The reference is torchvision's network with the backbone's tensors. The check uses two fixed images,
since shapes do not reveal weights that were not loaded, a stride or dilation in the wrong
convolution, or a wrong mean.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
from torch import Tensor, nn
from torchvision.models import ResNet

from transfer.encoders.resnets import network_with

Channels = tuple[float, float, float]

LAYERS = ("layer1", "layer2", "layer3", "layer4")
TOLERANCE = 1e-4
"""Maximum difference of a stage's map, relative to its largest value.

Identical kernels give 0.
"""
SMALLEST = 1e-12
"""Lower bound of the divisor, against division by zero."""


def verify_maps(
    network: nn.Module,
    feature_maps: Callable[[Tensor], Mapping[str, Tensor]],
    state_dict: Mapping[str, Tensor],
    arch: str,
    *,
    mean: Channels,
    std: Channels,
    changed: Callable[[ResNet], ResNet] = lambda source: source,
    advice: str = "",
) -> dict[str, float]:
    """Return each stage's largest difference on two fixed images.

    Args:
        network: the network, of which all parameters are on one device.
        feature_maps: function from images (n, 3, H, W) uint8 to the network's maps by name.
        state_dict: the loaded backbone, with torchvision's names and shapes.
        arch: the backbone's architecture.
        mean: mean of each channel, for pixels from 0 to 1.
        std: standard deviation of each channel, for pixels from 0 to 1.
        changed: applies the network's changes to torchvision's network.
        advice: inserted into the error message.

    Returns:
        The differences after layer1 to layer4, relative to the largest value of the map.

    Raises:
        ValueError: if a difference exceeds TOLERANCE.
    """
    device = next(network.parameters()).device
    tensors = {name: tensor.to(device) for name, tensor in state_dict.items()}
    source = changed(network_with(arch, "imagenet", tensors))
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(0, 256, (2, 3, 64, 96), dtype=torch.uint8, generator=generator)
    images = images.to(device)
    center, scale = for_bytes(mean, std).to(device)
    was_training = network.training
    network.eval()
    with exact_convolutions(), torch.inference_mode():
        maps, expected_maps = feature_maps(images), stage_maps(source, (images - center) / scale)
    network.train(was_training)
    differences = {}
    for name, expected in expected_maps.items():
        actual, difference = maps[name], math.inf
        if actual.shape == expected.shape:
            largest = expected.abs().max().clamp_min(SMALLEST)
            difference = ((actual - expected).abs().max() / largest).item()
        if not difference <= TOLERANCE:  # NaN fails, too
            raise ValueError(
                f"the network's map after {name} differs from the backbone's by {difference:.1e}; "
                f"allowed is {TOLERANCE:.0e}. Weights were not loaded into the right layers, a "
                f"stride is in the wrong layer, {advice}or images are not normalized by mean "
                f"{mean} and std {std}"
            )
        differences[name] = difference
    return differences


def exact_convolutions() -> AbstractContextManager[None]:
    """Switch TF32 off, whose rounding errors would hide small faults."""
    return torch.backends.cudnn.flags(enabled=True, deterministic=True, allow_tf32=False)


def for_bytes(mean: Channels, std: Channels) -> Tensor:
    """Return mean and standard deviation (2, 3, 1, 1) for pixels from 0 to 255."""
    return (255 * torch.tensor([mean, std], dtype=torch.float64)).float()[..., None, None]


def stage_maps(network: Any, images: Tensor, names: Sequence[str] = LAYERS) -> dict[str, Tensor]:
    """Return the maps (n, C, h, w) of a ResNet after the named stages.

    images: (n, 3, H, W), normalized.
    """
    x = network.maxpool(network.relu(network.bn1(network.conv1(images))))
    maps = {}
    for name in names:
        x = maps[name] = getattr(network, name)(x)
    return maps
