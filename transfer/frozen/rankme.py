"""RankMe: the effective rank of features, without labels.

Garrido et al., ICML 2023, arXiv:2210.02885. The features of a collapsed network have a low rank.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import Tensor

    from transfer.datasets.folders import Folders
    from transfer.encoders.encoder import Encoder
    from transfer.frozen.transforms import EvalTransform

EPSILON = 1e-7
NUM_IMAGES = 25_600
"""Images from which the paper estimates the rank."""
RANKME = "rankme"
"""Key in the details of a record."""


def rankme(features: Tensor) -> float:
    """Return exp of the entropy of the normalized singular values of features (n, C).

    It lies between 1 and min(n, C). The features are not centered. Singular values come from the
    smaller Gram matrix, in float64.
    """
    import torch

    rows = features.double()
    gram = rows.T @ rows if rows.shape[0] >= rows.shape[1] else rows @ rows.T
    singular = torch.linalg.eigvalsh(gram).clamp(min=0).sqrt()
    shares = singular / singular.sum() + EPSILON
    return float(torch.exp(-(shares * shares.log()).sum()))


def rankme_details(
    dataset: str,
    extracted: Sequence[tuple[str, EvalTransform]],
    backbone: Encoder,
    folders: Folders,
) -> dict[str, Any]:
    """Return RankMe of a task's features, as details of its record.

    The details also name the images and the layer; they are empty if the task extracts nothing. Up
    to NUM_IMAGES equally spaced training images are used, or images of the first split if the task
    extracts no training images.
    """
    from transfer.frozen.feature_cache import features_of_backbones
    from transfer.frozen.network import device, upload

    if not extracted:
        return {}
    split, transform = next((pair for pair in extracted if pair[0] == "trainval"), extracted[0])
    (stored,) = features_of_backbones([backbone], dataset, split, transform, folders)
    features, count = stored.features, len(stored.features)
    if count > NUM_IMAGES:
        features = features[[i * count // NUM_IMAGES for i in range(NUM_IMAGES)]]
    layer = f"pooled backbone features ({features.shape[1]}), before the task normalizes them"
    return {
        RANKME: {
            "value": rankme(upload(features, device())),
            "images": f"{len(features)} {split} images of {dataset}, center crops",
            "layer": layer,
        }
    }
