"""Linear classifiers, and the one that other tasks use: kept where its own task worked."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from transfer.stages import load_stage, save_stage

IMAGES_PER_PART = 65_536


@dataclass(frozen=True)
class Heads:
    """R linear classifiers."""

    weight: Tensor
    """(R, L, C)."""
    bias: Tensor
    """(R, L)."""

    def scores(self, features: Tensor) -> Tensor:
        """(R, n, L) of features (n, C)."""
        weight, bias = self.weight.to(features.device), self.bias.to(features.device)
        return torch.einsum("nc,rlc->rnl", features, weight) + bias[:, None]

    def only(self, index: int) -> "Heads":
        """One of them."""
        return Heads(self.weight[index : index + 1], self.bias[index : index + 1])


def classifier_file(folder: Path) -> Path:
    """In the working folder of the task that trained it."""
    return folder / "classifier.stage"


def save_classifier(folder: Path, head: Heads) -> None:
    """Keep a single head."""
    save_stage(classifier_file(folder), {"weight": head.weight, "bias": head.bias})


def load_classifier(folder: Path) -> Heads | None:
    """The head; None if none was kept, or if its file is torn."""
    stored = load_stage(classifier_file(folder))
    return None if stored is None else Heads(stored["weight"], stored["bias"])


def scores_of(head: Heads, features: Tensor) -> Tensor:
    """(n, L) of features (n, C) that may be mapped from the disk."""
    parts = features.split(IMAGES_PER_PART)
    return torch.cat([head.scores(part)[0] for part in parts])


def among(labels: Tensor, names: Sequence[str], classes: Sequence[str]) -> Tensor:
    """Labels (n,) that count `names`, as the classes of a classifier count them.

    ValueError if the classifier does not know one of the names.
    """
    unknown = [name for name in names if name not in classes]
    if unknown:
        raise ValueError(
            f"the classifier of {len(classes)} classes knows no {unknown[0]}, nor "
            f"{len(unknown) - 1} others of {len(names)}; train it on all of ImageNet-100"
        )
    return torch.tensor([classes.index(name) for name in names])[labels]
