"""GPU hours that follow from the arithmetic of a forward pass and an assumed speed.

What a task costs is answered by its own `gpu_hours`, in its file in tasks/.
"""

from transfer.backbone import Backbone
from transfer.convert.architectures import Stem, network_and_heads
from transfer.datasets.catalog import DATASETS
from transfer.encoders.encoder import Encoder

IMAGES_PER_GPU_SECOND = 2500.0
"""Assumed speed of a ResNet-50 at 224 px in bfloat16."""
FORWARD_COST = {
    "resnet18": 0.44,
    "resnet34": 0.89,
    "resnet101": 1.9,
    "resnet152": 2.8,
    "wide_resnet50_2": 2.8,
    "wide_resnet101_2": 5.6,
    "resnext50_32x4d": 1.03,
    "resnext101_32x8d": 4.0,
    "resnet50w2": 3.9,
    "resnet50w4": 15.0,
}
"""Arithmetic of a forward pass in units of a ResNet-50's (torchvision's table of GFLOPS)."""
LAYER4_COST = {"resnet18": 0.10, "resnet34": 0.16}
"""Arithmetic of layer4 alone, in the same unit; 0.20 for networks with bottlenecks."""
BACKWARD_COST = 3.0
"""Arithmetic of a training step of the whole network in units of its forward pass."""
STEM_COST: dict[Stem, float] = {
    "imagenet": 1.0,
    "imagenet-nopool": 4.0,
    "cifar": 15.0,
    "cifar-maxpool": 4.0,
    "cifar-pad2": 15.0,
}
"""Arithmetic of a network with each stem in units of the ImageNet stem's."""


def forward_hours(backbone: Backbone, images: float) -> float:
    """Return the hours of a forward pass of so many images at the backbone's image size."""
    if isinstance(backbone, Encoder):
        return backbone.cost * images / IMAGES_PER_GPU_SECOND / 3600
    network, num_heads = network_and_heads(backbone.arch)
    cost = FORWARD_COST.get(network, 1.0)
    cost += max(0, num_heads - 1) * LAYER4_COST.get(network, 0.20)
    cost *= (backbone.input.size_px / 224) ** 2 * STEM_COST[backbone.stem]
    return cost * images / IMAGES_PER_GPU_SECOND / 3600


def probe_hours(
    backbone: Backbone, dataset: str, *, crops: float = 0.0, epochs: float = 0.0
) -> float:
    """Return the hours to extract a data set once and to train on random crops of it.

    The number of crops is `crops` plus `epochs` passes over trainval, of the published size. A crop
    costs a forward pass.
    """
    counts = DATASETS[dataset].counts
    trainval, test = counts.get("trainval", 0), counts.get("test", 0)
    return forward_hours(backbone, crops + epochs * trainval + trainval + test)
