"""Linear classifiers, their files, and their results by class.

A classifier that other tasks use is stored in the working folder of the task that trained it. Its
file name contains a hash of the weights, so trainings that share a folder have separate files.
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

MAX_PAIRS = 20


Metric = Callable[["Tensor", "Tensor"], float]
"""Function of scores (n, L) and labels (n,) that returns percent."""


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
        """Return the metric of each head in percent; -1 if it diverged."""
        scores, labels = self.scores(features.features), features.labels
        return [
            metric(head_scores, labels) if bool(head_scores.isfinite().all()) else -1.0
            for head_scores in scores
        ]


def classifier_file(folder: Path, name: str) -> Path:
    """Return the file of a classifier; name: a hash of its weights."""
    return folder / f"classifier-{name}.stage"


def save_classifier(folder: Path, head: Heads) -> str:
    """Write one head (R = 1) to its file; return the hash of its weights (16 hex digits)."""
    from pretrain.running.atomic_files import save_stage

    name = hash_of(head.weight, head.bias)[:16]
    # clone, since torch would store the tensor of all heads
    tensors = {"weight": head.weight.clone(), "bias": head.bias.clone()}
    save_stage(classifier_file(folder, name), tensors)
    return name


def load_classifier(file: Path) -> Heads | None:
    """Return the head in a file; None if missing or damaged."""
    from pretrain.running.atomic_files import load_stage

    stored = load_stage(file)
    return None if stored is None else Heads(stored["weight"], stored["bias"])


def labels_among(labels: Tensor, names: Sequence[str], classes: Sequence[str]) -> Tensor:
    """Convert labels (n,) from indices into `names` to indices into `classes`.

    Raises ValueError if `classes` does not contain a name.
    """
    import torch

    if unknown := [name for name in names if name not in classes]:
        raise ValueError(
            f"the classifier lacks {len(unknown)} of the {len(names)} classes, such as "
            f"{unknown[0]}. Train it on all of ImageNet-100"
        )
    return torch.tensor([classes.index(name) for name in names])[labels]


def class_results(
    scores: Tensor, labels: Tensor, names: Sequence[str], *, repeats: int = 1
) -> dict[str, Any]:
    """Return accuracy by class in percent, most confused pairs, and per-image results.

    scores (n, L), labels (n,) of 0..L-1, names: L names. A pair counts the images of one class that
    were classified as the other; ties are in the order of the classes. Classes without images have
    no accuracy. repeats: number of repetitions of the test images in the scores.
    """
    import torch

    from transfer.outcomes import per_image

    num_classes = len(names)
    predicted, labels = scores.argmax(dim=1).cpu(), labels.cpu()
    correct = (predicted == labels).reshape(repeats, -1).sum(dim=0)
    counts = torch.bincount(labels * num_classes + predicted, minlength=num_classes**2)
    confusion = counts.reshape(num_classes, num_classes)
    images, num_correct = confusion.sum(dim=1).tolist(), confusion.diagonal().tolist()
    wrong = confusion.clone().fill_diagonal_(0).flatten()
    pairs = torch.sort(wrong, descending=True, stable=True).indices[:MAX_PAIRS].tolist()
    return {
        "accuracy_per_class": {
            name: round(100 * correct_of_class / total, 2)
            for name, correct_of_class, total in zip(names, num_correct, images, strict=True)
            if total
        },
        "most_confused": [
            {
                "class": names[pair // num_classes],
                "taken_for": names[pair % num_classes],
                "images": int(wrong[pair]),
                "of": images[pair // num_classes],
            }
            for pair in pairs
            if wrong[pair]
        ],
        **per_image(correct.numpy(), labels[: len(correct)].numpy(), num_predictions=repeats),
    }
