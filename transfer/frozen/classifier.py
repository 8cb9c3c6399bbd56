"""Linear classifiers, their file, and their results by class.

The file of the one that other tasks use lies in the working folder of the task that trained it. A
hash of the weights names it, so trainings that share a folder cannot mix up their classifiers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transfer.frozen.feature_cache import Features, hash_of
from transfer.metrics import top1

if TYPE_CHECKING:
    from torch import Tensor

IMAGES_PER_PART = 65_536
MOST_PAIRS = 20


Metric = Callable[["Tensor", "Tensor"], float]
"""Function of scores (n, L) and labels (n,), in percent."""


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

    def accuracies(self, features: Features, metric: Metric = top1) -> list[float]:
        """Return the metric of each head in percent, -1 for a head that diverged."""
        scores, labels = self.scores(features.features), features.labels
        return [metric(own, labels) if bool(own.isfinite().all()) else -1.0 for own in scores]


def weights_hash(head: Heads) -> str:
    """Return sixteen hex digits that hash every weight."""
    return hash_of(head.weight, head.bias)[:16]


def classifier_file(folder: Path, name: str) -> Path:
    """Return the file of a classifier in a working folder; name: its `identity`."""
    return folder / f"classifier-{name}.stage"


def save_classifier(folder: Path, head: Heads) -> str:
    """Write a single head (R = 1) to its file; return its identity."""
    from pretrain.running.atomic_files import save_stage

    name = weights_hash(head)
    # of views, torch would store all heads
    tensors = {"weight": head.weight.clone(), "bias": head.bias.clone()}
    save_stage(classifier_file(folder, name), tensors)
    return name


def load_classifier(file: Path) -> Heads | None:
    """Return the head in a file; None if the file is absent, torn or holds another head."""
    from pretrain.running.atomic_files import load_stage

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


def class_results(
    scores: Tensor, labels: Tensor, names: Sequence[str], *, repeats: int = 1
) -> dict[str, Any]:
    """Return accuracy by class in percent, the most confused pairs, and which images are right.

    scores (n, L), labels (n,) of 0..L-1, names: L names. A pair counts the images of one class that
    were taken for another; pairs of equally many images stand in the order of the classes. Classes
    without images have no accuracy. repeats: how often the same test images follow each other.
    """
    import torch

    from transfer.outcomes import per_image

    if len(names) != scores.shape[1]:
        raise ValueError(f"{len(names)} names for {scores.shape[1]} classes")
    num_classes = len(names)
    predicted, labels = scores.argmax(dim=1).cpu(), labels.cpu()
    right = (predicted == labels).reshape(repeats, -1).sum(dim=0)
    counts = torch.bincount(labels * num_classes + predicted, minlength=num_classes**2)
    table = counts.reshape(num_classes, num_classes)
    images, hits_of = table.sum(dim=1).tolist(), table.diagonal().tolist()
    wrong = table.clone().fill_diagonal_(0).flatten()
    places = torch.sort(wrong, descending=True, stable=True).indices[:MOST_PAIRS].tolist()
    return {
        "accuracy_per_class": {
            name: round(100 * hits / total, 2)
            for name, hits, total in zip(names, hits_of, images, strict=True)
            if total
        },
        "most_confused": [
            {
                "class": names[place // num_classes],
                "taken_for": names[place % num_classes],
                "images": int(wrong[place]),
                "of": images[place // num_classes],
            }
            for place in places
            if wrong[place]
        ],
        **per_image(right.numpy(), labels[: len(right)].numpy(), of=repeats),
    }
