"""Names of tensors in checkpoints, by project; reads names.yaml.

A `Scheme` is a way to name the layers of a ResNet. A *layout* is a scheme with a prefix and other
tensors that are typical of a project. The loader needs the scheme; the report shows the layout.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from transfer.encoders.architectures import Stem

NAMES: dict[str, Any] = yaml.load(
    Path(__file__).with_name("names.yaml").read_text(encoding="utf-8"),
    getattr(yaml, "CSafeLoader", yaml.SafeLoader),  # five times as fast, if it is installed
)
MAX_LENGTH = 160
"""Longest name in messages."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Scheme:
    """A translation of torchvision's names."""

    name: str
    renames: dict[str, str]
    """Patterns and replacements, applied in this order."""
    heads: str = ""
    """Prefix of a head's name next to the backbone, after the backbone's own prefix."""
    stems: tuple[Stem, ...] = ("imagenet", "cifar")
    """Stems that tensors alone can show."""

    def rename(self, name: str) -> str:
        """Translate torchvision's `name`, such as layer1.0.bn2.bias to res2.0.conv2.norm.bias."""
        for pattern, replacement in self.renames.items():
            name = re.sub(pattern, replacement, name)
        return name


SCHEMES = tuple(Scheme(**fields) for fields in NAMES["schemes"])
DETECTRON2 = next(scheme for scheme in SCHEMES if scheme.name == "detectron2")


def layout_name(scheme: str, prefix: str, others: Iterable[str]) -> str:
    """Return the project that writes a ResNet with this prefix next to the tensors `others`."""
    if scheme == "detectron2":
        return scheme
    if scheme.startswith("nn.Sequential"):
        return "lightly" if prefix.endswith("backbone.") else "nn.Sequential"
    names = ["", *others]
    for row in NAMES["layouts"]:
        beside = re.compile(row.get("beside", ""))
        if re.search(f"{row['prefix']}$", prefix) and any(map(beside.search, names)):
            return str(row["name"])
    return "unknown"


def is_optional(name: str) -> bool:
    """Return whether a tensor may be missing: a step counter, or a table that sizes determine."""
    return re.search(NAMES["optional"], name) is not None


def brief(names: Iterable[object]) -> str:
    """Return the first names of a file for a message, each truncated if it is long."""
    listed = [text[:MAX_LENGTH] + "..." * (len(text) > MAX_LENGTH) for text in map(str, names)]
    more = f" and {len(listed) - 6} more" if len(listed) > 6 else ""
    return ", ".join(listed[:6]) + more


def escape(text: str) -> str:
    """Return text that any stream can print: halves of surrogate pairs are escaped."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
