"""The steps of detection and segmentation before the training loop starts and after it ends."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import Field, asdict, dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, TypeVar

from transfer.backbone import Backbone, BackboneError
from transfer.convert.architectures import has_max_pool, is_large
from transfer.finetuning.recipe import FineTuningRecipe
from transfer.running.console import print_line
from transfer.running.content_hash import content_hash
from transfer.running.processes import this_process

if TYPE_CHECKING:
    from transfer.finetuning.norms import Norm
    from transfer.finetuning.state import TrainingSummary

Portion = TypeVar("Portion")
Network = TypeVar("Network")


@dataclass(frozen=True, eq=False)
class Prepared(Generic[Portion]):
    """The inputs of a run, opened and proven before it starts."""

    backbone: Backbone
    norm: Norm
    differences: dict[str, float]
    """Largest difference of each stage's map from torchvision's, in units of its largest value."""
    images: Portion
    """Training images and test images."""
    held_out: Portion | None
    """Two parts of the training images, to compare learning rates on; None without a search."""


class TrainedNetwork(Protocol):
    """The result of a training: a frozen dataclass with details for the record."""

    __dataclass_fields__: ClassVar[dict[str, Field[Any]]]

    @property
    def details(self) -> Mapping[str, object]:
        """Details of the training."""


def prepare_training(
    backbone: Backbone,
    recipe: FineTuningRecipe,
    unfit_reason: str,
    *,
    open_portion: Callable[[str, str], Portion],
    build: Callable[[Portion, Norm], Network],
    prove: Callable[[Network], dict[str, float]],
    searches: bool,
) -> Prepared[Portion]:
    """Open all images, load the weights into the network and prove it on a fixed image.

    open_portion: opens a training and a test split. searches: whether learning rates are compared.
    BackboneError if `unfit_reason` is not empty.
    """
    from transfer.finetuning.norms import norm_for

    if unfit_reason:
        raise BackboneError(f"{backbone.name}: no network can be built on it: {unfit_reason}")
    process = this_process()
    norm = norm_for(recipe.synchronized_norm, process.device, process.num_processes)
    images = open_portion("trainval", "test")
    differences = prove(build(images, norm))
    if process.is_main:
        placed, worst = len(backbone.state_dict), max(differences.values())
        print_line("weights", f"{placed} tensors in place, maps within {worst:.0e}; norm {norm}")
    held_out = open_portion("train", "val") if searches else None
    return Prepared(backbone, norm, differences, images, held_out)


def unfit(backbone: Backbone, strides: str) -> str:
    """Return why a backbone cannot be fine-tuned as a whole; empty if it can.

    strides: clause of the message on the strides that a backbone with another stem does not have.
    """
    if backbone.stem != "imagenet":
        kept = "half the image's size" if is_large(backbone.stem) else "the image's full size"
        kept = "half the image's size" if has_max_pool(backbone.stem) else kept
        return f"the {backbone.stem} stem keeps {kept}: {strides}"
    if "-heads" in backbone.arch:
        return f"{backbone.arch} has several layer4; give the file of one head"
    return ""


def training_hash(
    prepared: Prepared[Portion],
    recipe: FineTuningRecipe,
    seed: int,
    *,
    code_version: int,
    engine: str,
    images: str,
) -> str:
    """Return a hash of all that determines the weights; a training resumes only its own state.

    images: fingerprint of the training images.
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
    return content_hash(parts, 12)


def training_details(
    prepared: Prepared[Portion], recipe: FineTuningRecipe, training: TrainingSummary
) -> dict[str, object]:
    """Return the details of a training for its record."""
    from transfer.finetuning.norms import images_per_norm

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


def _tf32(recipe: FineTuningRecipe) -> bool:
    """Return whether float32 convolutions run in TF32, with 10 bits of mantissa."""
    import torch

    asked = recipe.precision == "float32" and torch.backends.cudnn.allow_tf32
    return asked and torch.cuda.is_available() and torch.cuda.get_device_capability() >= (8, 0)
