"""What detection and segmentation do around the loop: before it starts, and after its end."""

import hashlib
import json
from dataclasses import asdict, dataclass
from typing import Generic, TypeVar

import torch

from transfer.backbone import Backbone, BackboneError
from transfer.console import say
from transfer.detection.recipe import Recipe
from transfer.processes import this_process
from transfer.segmentation.recipe import SegmentationRecipe
from transfer.training.norms import Norm, images_per_norm
from transfer.training.state import TrainingSummary

Portion = TypeVar("Portion")


@dataclass(frozen=True, eq=False)
class Prepared(Generic[Portion]):
    """All that the run needs, found and proven before it starts."""

    backbone: Backbone
    norm: Norm
    differences: dict[str, float]
    """Of each stage's map from torchvision's, the largest in units of the largest value."""
    images: Portion
    """What the network learns from, and what it is tested on."""
    held_out: Portion | None
    """Parts of the training images, where learning rates are to be tried."""


def unfit(backbone: Backbone, strides: str) -> str:
    """Why a backbone cannot be fine-tuned as a whole; empty if it can.

    strides: what its stages' would not be, if it kept the image's full size.
    """
    if backbone.stem != "imagenet":
        return f"the {backbone.stem} stem keeps the image's full size: {strides}"
    if "-heads" in backbone.arch:
        return f"{backbone.arch} has several layer4; give the file of one head"
    return ""


def require_fit(backbone: Backbone, reason: str) -> None:
    """BackboneError if there is a reason against it."""
    if reason:
        raise BackboneError(f"{backbone.name}: no network can be built on it: {reason}")


def say_proven(backbone: Backbone, differences: dict[str, float], norm: Norm) -> None:
    """That the weights are in their place."""
    if this_process().speaks:
        placed, worst = len(backbone.state_dict), max(differences.values())
        say("weights", f"{placed} tensors in place, maps within {worst:.0e}; norm {norm}")


def identity(
    prepared: Prepared[Portion],
    recipe: Recipe | SegmentationRecipe,
    seed: int,
    *,
    code_version: int,
    engine: str,
    images: str,
) -> str:
    """Of all that shapes the weights: a changed setting never goes on from old ones.

    images: fingerprint of those that are learned from.
    """
    parts = [
        code_version,
        engine,
        prepared.norm,
        prepared.backbone.sha256,
        images,
        asdict(recipe),
        seed,
        this_process().num_processes,
    ]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:12]


def told(
    prepared: Prepared[Portion], recipe: Recipe | SegmentationRecipe, training: TrainingSummary
) -> dict[str, object]:
    """What the record tells of a training."""
    process = this_process()
    return {
        "norm": prepared.norm,
        "num_processes": process.num_processes,
        "tensors_placed": len(prepared.backbone.state_dict),
        "largest_difference_of_maps": prepared.differences,
        "images_per_norm_statistic": images_per_norm(recipe, prepared.norm, process),
        "learning_rate": recipe.learning_rate,
        "tf32_convolutions": _tf32(recipe),
        "training": asdict(training),
    }


def _tf32(recipe: Recipe | SegmentationRecipe) -> bool:
    """Whether what is called float32 has 10 bits of mantissa in convolutions."""
    asked = recipe.precision == "float32" and torch.backends.cudnn.allow_tf32
    return asked and torch.cuda.is_available() and torch.cuda.get_device_capability() >= (8, 0)
