"""Estimated GPU hours of passes through a backbone, by measured rates where there are any.

What a task costs is answered by its own `gpu_hours`, in its file in tasks/.
"""

from transfer.backbone import Backbone
from transfer.convert.architectures import Stem, network_and_heads
from transfer.datasets.catalog import DATASETS
from transfer.encoders.encoder import Encoder
from transfer.running.measured_rates import ASSUMED, Rates

IMAGES_PER_GPU_SECOND = 2500.0
"""Assumed speed of a ResNet-50 at 224 px in bf16, where it is not measured."""
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


def forward_hours(backbone: Backbone, images: float, rates: Rates = ASSUMED) -> float:
    """Return the hours of a forward pass of so many images at the backbone's image size."""
    if isinstance(backbone, Encoder):
        return backbone.cost * images / images_per_second("", backbone.precision, rates)[1] / 3600
    network, num_heads = network_and_heads(backbone.arch)
    measured, speed = images_per_second(network, backbone.precision, rates)
    cost = FORWARD_COST.get(network, 1.0)
    cost += max(0, num_heads - 1) * LAYER4_COST.get(network, 0.20)
    cost /= FORWARD_COST.get(measured, 1.0)
    cost *= (backbone.input.size_px / 224) ** 2
    cost *= STEM_COST[backbone.stem]
    return cost * images / speed / 3600


def images_per_second(network: str, precision: str, rates: Rates) -> tuple[str, float]:
    """Return a network and its images of 224 px per second.

    It is this network if it is measured, else a ResNet-50, measured or assumed.
    """
    own = rates.features_per_second(network, precision)
    if own:
        return network, own
    return "resnet50", rates.features_per_second("resnet50", precision) or IMAGES_PER_GPU_SECOND


def training_hours(backbone: Backbone, images: float, speed: float) -> float:
    """Return the hours to train the whole network on images of its size, as often as they come.

    speed: images of 224 px per second on which a ResNet-50 trains.
    """
    cost = FORWARD_COST.get(backbone.arch, 1.0) * (backbone.input.size_px / 224) ** 2
    return cost * STEM_COST.get(backbone.stem, 1.0) * images / speed / 3600


def probe_hours(
    backbone: Backbone,
    dataset: str,
    *,
    crops: float = 0.0,
    epochs: float = 0.0,
    rates: Rates = ASSUMED,
) -> float:
    """Return the hours to extract a data set once and to train on random crops of it.

    The number of crops is `crops` plus `epochs` passes over trainval, of the published size. A crop
    costs a forward pass, and what a measured probe of a ResNet-50 takes beyond that.
    """
    counts = DATASETS[dataset].counts
    trainval, test = counts.get("trainval", 0), counts.get("test", 0)
    cost_of_crop = 1.0
    if rates.probe_crops:
        cost_of_crop = images_per_second("resnet50", "bfloat16", rates)[1] / rates.probe_crops
    trained = cost_of_crop * (crops + epochs * trainval)
    return forward_hours(backbone, trained + trainval + test, rates)
