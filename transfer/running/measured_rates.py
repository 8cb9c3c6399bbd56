"""Measured speed of GPUs, a file for each kind of them below --runs; plans take hours from it."""

import json
import re
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pretrain.running.atomic_files import write_whole
from pretrain.running.processes import num_gpus

DRIVER = Path("/proc/driver/nvidia/gpus")
"""Folder in which NVIDIA's driver describes each GPU of this machine."""
FOLDER = "rates"
HOW_TO_MEASURE = "assumed, see make gpu-check"


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
    for gpu in names_of_gpus(runs):
        path = rates_file(runs, gpu)
        if path.exists():
            return read_rates(path) if num_gpus() else ASSUMED
    return ASSUMED


def names_of_gpus(runs: Path) -> list[str]:
    """Return the names of this machine's GPUs by its driver, then by its last measurement."""
    names = []
    for file in sorted(DRIVER.glob("*/information")):
        models = re.findall(r"^Model:\s*(.+?)\s*$", file.read_text(errors="replace"), re.MULTILINE)
        names += models[:1]
    stored = machine_file(runs)
    if stored.exists():
        names.append(stored.read_text().strip())
    return list(dict.fromkeys(names))


def read_rates(path: Path) -> Rates:
    """Return the rates in a file; ValueError, which says what to do, if it is damaged."""
    try:
        content: dict[str, Any] = json.loads(path.read_text())
        return Rates(**content)
    except (ValueError, TypeError) as error:
        raise ValueError(
            f"{path}: no rates of a GPU ({error}); delete it, and make gpu-check measures them "
            "again"
        ) from error
