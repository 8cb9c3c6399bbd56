"""Measured speed of GPUs, a file for each kind below --runs, and the GPU hours that follow from it.

What a task costs is answered by its own `gpu_hours`, in its file in tasks/.
"""

import json
import re
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from pretrain.running.atomic_files import write_whole
from pretrain.running.processes import num_gpus
from transfer.datasets.catalog import DATASETS
from transfer.encoders.architectures import Stem, network_and_heads
from transfer.encoders.encoder import Encoder

DRIVER = Path("/proc/driver/nvidia/gpus")
"""Folder in which NVIDIA's driver describes each GPU of this machine."""
FOLDER = "rates"
HOW_TO_MEASURE = "assumed, see make gpu-check"
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


@dataclass(frozen=True, kw_only=True)
class Rates:
    """Measured rates of one kind of GPU; without any, tasks assume theirs."""

    gpu: str = ""
    """Name of the GPU, as its driver gives it."""
    measured: str = ""
    """Date of the measurement, such as 2026-11-22."""
    commit: str = ""
    features: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    """Images of 224 px per second of frozen features, by architecture and precision."""
    probe_crops: float = 0.0
    """Crops of 224 px per second of a linear probe on a ResNet-50 in bfloat16; 0: not measured."""
    trainings: Mapping[str, Mapping[str, Mapping[str, float]]] = field(default_factory=dict)
    """Images and seconds per iteration of a ResNet-50's training, by recipe and precision."""

    @property
    def source(self) -> str:
        """Return where hours come from, for a plan: the GPU and the day, or that they are assumed.

        Some may be assumed beside measured ones.
        """
        return f"measured on {self.gpu}, {self.measured}" if self.gpu else HOW_TO_MEASURE

    def features_per_second(self, arch: str, precision: str) -> float:
        """Return images of 224 px per second; 0 if they are not measured."""
        return self.features.get(arch, {}).get(precision, 0.0)

    def trained_per_second(self, recipe: str, precision: str) -> float:
        """Return images per second of a training; 0 if it is not measured.

        float16 takes the time of bfloat16, whose products have the same size.
        """
        precisions = self.trainings.get(recipe, {})
        found = precisions.get("bfloat16" if precision == "float16" else precision)
        return found["images"] / found["seconds"] if found else 0.0


ASSUMED = Rates()
"""No measured rates."""


def rates_file(runs: Path, gpu: str) -> Path:
    """Return the file of a GPU's rates below --runs."""
    slug = re.sub(r"[^a-z0-9]+", "-", gpu.lower()).strip("-")
    return runs / FOLDER / f"{slug}.json"


def machine_file(runs: Path) -> Path:
    """Return the file with the name of the GPU that was measured on this machine."""
    return runs / FOLDER / "machines" / f"{socket.gethostname()}.txt"


def save_rates(runs: Path, rates: Rates) -> Path:
    """Write the rates of this machine's GPU and its name; return the file of the rates."""
    path = rates_file(runs, rates.gpu)
    write_whole(path, (json.dumps(asdict(rates), indent=1) + "\n").encode(), "--runs")
    write_whole(machine_file(runs), f"{rates.gpu}\n".encode(), "--runs")
    return path


def rates_of_this_machine(runs: Path) -> Rates:
    """Return the measured rates of this machine's GPU; ASSUMED if there are none.

    A machine whose GPUs a plan must not use (`assume_gpus(0)`) has none. ValueError for a damaged
    file. torch is not imported to name the GPU.
    """
    names, stored = [], machine_file(runs)
    for file in sorted(DRIVER.glob("*/information")):
        models = re.findall(r"^Model:\s*(.+?)\s*$", file.read_text(errors="replace"), re.MULTILINE)
        names += models[:1]
    if stored.exists():  # by its last measurement
        names.append(stored.read_text().strip())
    for gpu in names:
        path = rates_file(runs, gpu)
        if path.exists() and num_gpus():
            try:
                return Rates(**json.loads(path.read_text()))
            except (ValueError, TypeError) as error:
                raise ValueError(
                    f"{path}: no rates of a GPU ({error}); delete it, and make gpu-check measures "
                    "them again"
                ) from error
    return ASSUMED


def forward_cost(backbone: Encoder) -> float:
    """Return the arithmetic of a forward pass, in units of a ResNet-50's at 224 px."""
    if not backbone.is_resnet:
        return backbone.cost
    network, num_heads = network_and_heads(backbone.arch)
    cost = FORWARD_COST.get(network, 1.0)
    cost += max(0, num_heads - 1) * LAYER4_COST.get(network, 0.20)
    return cost * (backbone.input.size_px / 224) ** 2 * STEM_COST[backbone.stem]


def forward_hours(backbone: Encoder, images: float, rates: Rates = ASSUMED) -> float:
    """Return the hours of a forward pass of so many images at the backbone's image size."""
    network = backbone.arch.partition("-heads")[0]
    measured, speed = images_per_second(network, backbone.precision, rates)
    return forward_cost(backbone) / FORWARD_COST.get(measured, 1.0) * images / speed / 3600


def images_per_second(network: str, precision: str, rates: Rates) -> tuple[str, float]:
    """Return a network and its images of 224 px per second.

    It is this network if it is measured, else a ResNet-50, measured or assumed.
    """
    own = rates.features_per_second(network, precision)
    if own:
        return network, own
    return "resnet50", rates.features_per_second("resnet50", precision) or IMAGES_PER_GPU_SECOND


def probe_hours(
    backbone: Encoder,
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
