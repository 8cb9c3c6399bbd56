"""Checks of frozen features and of what is computed on them."""

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import cosine_similarity

from transfer.backbone import Backbone, Precision, random_backbone
from transfer.checks.comparison import Differences, exact_float32, relative_difference, roundings
from transfer.checks.report import Facts, Place
from transfer.frozen.network import forward, frozen_network, in_bfloat16

BFLOAT16_ROUNDINGS = 110
"""Roundings to bfloat16, of a weight and a map each, of a ResNet-50's 53 convolutions and more."""


def check_float32(arch: str, place: Place) -> Facts:
    """Compare float32 features on the device with those of the CPU."""
    backbone, images = lived_in_backbone(arch), noise_images(place)
    with exact_float32():
        expected = forward(backbone.network(), images)
        found = forward(frozen_network(backbone), images)
    differences = Differences()
    differences.add("features", relative_difference(found, expected), roundings(torch.float32))
    return differences.checked()


def check_bfloat16(arch: str, place: Place) -> Facts:
    """Compare the directions of bfloat16 features on the device with float32 ones of the CPU.

    n roundings by up to 2^-9 turn a vector by sqrt(n) * 2^-9.
    """
    backbone, images = lived_in_backbone(arch), noise_images(place)
    with exact_float32():
        expected = forward(backbone.network(), images)
        on_cpu = forward(in_bfloat16(backbone.network()), images)
        found = forward(frozen_network(replace(backbone, precision="bfloat16")), images).cpu()
    bound = BFLOAT16_ROUNDINGS * 2.0**-18 / 2  # 1 - cos(angle)
    differences = Differences()
    for name, other in (("1 - cosine with float32", expected), ("... with the CPU", on_cpu)):
        cosine = cosine_similarity(found.double(), other.double()).min()
        differences.add(name, float(1 - cosine), 2 * bound)
    return differences.checked()


def lived_in_backbone(arch: str, precision: Precision = "float32") -> Backbone:
    """Return a random backbone whose norms have means, variances and scales of their own."""
    backbone = random_backbone(arch=arch, stem="imagenet", seed=0)
    generator = torch.Generator().manual_seed(1)
    for name, tensor in backbone.state_dict.items():
        if name.endswith(("running_mean", "bn1.bias", "bn2.bias")):
            tensor.copy_(0.1 * torch.randn(tensor.shape, generator=generator))
        elif name.endswith(("running_var", "bn1.weight", "bn2.weight")):
            tensor.copy_(0.5 + torch.rand(tensor.shape, generator=generator))
    return replace(backbone, precision=precision)


def noise_images(place: Place) -> Tensor:
    """Return normalized images (n, 3, H, W) of noise on the CPU."""
    shape = (4, 3, 64, 64) if place.small else (16, 3, 224, 224)
    return torch.randn(shape, generator=torch.Generator().manual_seed(2))
