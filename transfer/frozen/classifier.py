"""Linear classifiers, and the file of the one that other tasks use.

The file lies in the working folder of the task that trained it. A hash of the weights names it, so
that trainings which share a folder cannot mix up their classifiers.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Tensor

IMAGES_PER_PART = 65_536


@dataclass(frozen=True)
class Heads:
    """R linear classifiers."""

    weight: Tensor
    """(R, L, C)."""
    bias: Tensor
    """(R, L)."""

    def scores(self, features: Tensor) -> Tensor:
        """Return scores (R, n, L) for features (n, C)."""
        import torch

        weight, bias = self.weight.to(features.device), self.bias.to(features.device)
        return torch.einsum("nc,rlc->rnl", features, weight) + bias[:, None]

    def only(self, index: int) -> Heads:
        """Return the classifier at this index alone, R = 1."""
        return Heads(self.weight[index : index + 1], self.bias[index : index + 1])


def weights_hash(head: Heads) -> str:
    """Return sixteen hex digits that hash every weight."""
    digest = hashlib.sha256()
    for tensor in (head.weight, head.bias):
        digest.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().numpy().data)
    return digest.hexdigest()[:16]


def classifier_file(folder: Path, name: str) -> Path:
    """Return the file of a classifier in a working folder; name: its `identity`."""
    return folder / f"classifier-{name}.stage"


def any_classifier(folder: Path) -> bool:
    """Return whether the folder holds any classifier."""
    return any(folder.glob(classifier_file(folder, "*").name))


def save_classifier(folder: Path, head: Heads) -> str:
    """Write a single head (R = 1) to its file; return its identity."""
    from transfer.running.stages import save_stage

    name = weights_hash(head)
    save_stage(classifier_file(folder, name), {"weight": head.weight, "bias": head.bias})
    return name


def load_classifier(file: Path) -> Heads | None:
    """Return the head in a file; None if the file is absent, torn or holds another head."""
    from transfer.running.stages import load_stage

    stored = load_stage(file)
    if stored is None:
        return None
    head = Heads(stored["weight"], stored["bias"])
    return head if file == classifier_file(file.parent, weights_hash(head)) else None


def classifier_scores(head: Heads, features: Tensor) -> Tensor:
    """Return scores (n, L) for features (n, C), in parts, since these may be mapped from disk."""
    import torch

    parts = features.split(IMAGES_PER_PART)
    return torch.cat([head.scores(part)[0] for part in parts])


def labels_among(labels: Tensor, names: Sequence[str], classes: Sequence[str]) -> Tensor:
    """Convert labels (n,) from indices into `names` to indices into a classifier's `classes`.

    ValueError if one of the names is not among the classes.
    """
    import torch

    unknown = [name for name in names if name not in classes]
    if unknown:
        raise ValueError(
            f"the classifier of {len(classes)} classes knows no {unknown[0]}, nor "
            f"{len(unknown) - 1} others of {len(names)}; train it on all of ImageNet-100"
        )
    return torch.tensor([classes.index(name) for name in names])[labels]
