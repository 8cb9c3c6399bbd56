"""Names of a ResNet's tensors in checkpoints, and the projects that use them.

A `Scheme` is a way to name the layers. A *layout* is a scheme with a prefix and other tensors that
are typical of a project. Recognition needs the scheme only; the layout is for the report.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from transfer.convert.architectures import Stem

NAMES: dict[str, Any] = yaml.load(
    Path(__file__).with_name("names.yaml").read_text(encoding="utf-8"),
    getattr(yaml, "CSafeLoader", yaml.SafeLoader),  # five times as fast where it is there
)
"""Names in checkpoints that tell projects, networks, settings and classes."""


@dataclass(frozen=True, kw_only=True)
class Scheme:
    """A translation of torchvision's names."""

    name: str
    conv1: str = "conv1"
    bn1: str = "bn1"
    layers: tuple[str, str, str, str] = ("layer1", "layer2", "layer3", "layer4")
    norm: str = "bn{}"
    """Name of the norm of the convolution with this number in a block."""
    shortcut: tuple[str, str] = ("downsample.0", "downsample.1")
    """Names of the shortcut's convolution and norm."""
    heads: str = ""
    """Prefix of a head's name beside the backbone, below the backbone's own prefix."""
    stems: tuple[Stem, ...] = ("imagenet", "cifar")
    """Stems that tensors alone stand for."""

    def rename(self, name: str) -> str:
        """Translate torchvision's `name`, such as layer1.0.bn2.bias to res2.0.conv2.norm.bias."""
        first, *rest = name.split(".")
        if first == "conv1":
            return ".".join([self.conv1, *rest])
        if first == "bn1":
            return ".".join([self.bn1, *rest])
        block, module, *rest = rest
        if module == "downsample":
            module = self.shortcut[int(rest.pop(0))]
        elif module.startswith("bn"):
            module = self.norm.format(module.removeprefix("bn"))
        return ".".join([self.layers[int(first[-1]) - 1], block, module, *rest])


SCHEMES = tuple(
    Scheme(**{key: tuple(v) if isinstance(v, list) else v for key, v in fields.items()})  # type: ignore[arg-type]
    for fields in NAMES["schemes"]
)
DETECTRON2 = SCHEMES[-1]


def layout_name(scheme: Scheme, prefix: str, others: Iterable[str]) -> str:
    """Return the project name for a backbone below `prefix` beside the tensors `others`."""
    if scheme.name == "detectron2":
        return "detectron2"
    if scheme.name.startswith("nn.Sequential"):
        return "lightly" if prefix.endswith("backbone.") else "nn.Sequential"
    names = list(others)
    for row in NAMES["layouts"]:
        beside = row.get("beside", "")
        if re.search(f"{row['prefix']}$", prefix) and any(
            re.search(beside, name) for name in ["", *names]
        ):
            return str(row["name"])
    return "unknown"
