"""Tensor names in checkpoints, by project; reads names.yaml.

A `Scheme` is a way to name the layers of a ResNet. A *layout* is a scheme with a prefix and other
tensors that are typical of a project. The loader needs the scheme; the report shows the layout.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from pretrain.running.reading import read_yaml
from transfer.encoders.architectures import Stem

NAMES: dict[str, Any] = read_yaml(Path(__file__).with_name("names.yaml"))


@dataclass(frozen=True, kw_only=True, eq=False)
class Scheme:
    """A translation of torchvision's tensor names."""

    name: str
    renames: dict[str, str]
    """Patterns and replacements, applied in this order."""
    heads: str = ""
    """Prefix of a head next to the backbone, without the backbone's prefix."""
    stems: tuple[Stem, ...] = ("imagenet", "cifar")
    """Stems that can be distinguished by their tensors."""

    def rename(self, name: str) -> str:
        """Translate a torchvision name.

        For example, layer1.0.bn2.bias becomes res2.0.conv2.norm.bias in detectron2.
        """
        for pattern, replacement in self.renames.items():
            name = re.sub(pattern, replacement, name)
        return name


SCHEMES = tuple(Scheme(**fields) for fields in NAMES["schemes"])
DETECTRON2 = next(scheme for scheme in SCHEMES if scheme.name == "detectron2")


def layout_name(scheme: str, prefix: str, other_tensors: Iterable[str]) -> str:
    """Return the project with this naming scheme, prefix and other tensors."""
    if scheme == "detectron2":
        return scheme
    if scheme.startswith("nn.Sequential"):
        return "lightly" if prefix.endswith("backbone.") else "nn.Sequential"
    names = ["", *other_tensors]
    for row in NAMES["layouts"]:
        pattern = re.compile(row.get("beside", ""))
        if re.search(f"{row['prefix']}$", prefix) and any(map(pattern.search, names)):
            return str(row["name"])
    return "unknown"


@cache  # finding a network asks for thousands of names many times
def is_optional(name: str) -> bool:
    """Return whether a tensor may be missing.

    Step counters may, and tables that the network's sizes determine.
    """
    return re.search(NAMES["optional"], name) is not None


def brief(names: Iterable[object]) -> str:
    """Return the first six names for a message."""
    texts = [*map(str, names)]
    return ", ".join(texts[:6]) + (f" and {len(texts) - 6} more" if len(texts) > 6 else "")
