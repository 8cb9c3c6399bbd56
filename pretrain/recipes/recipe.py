"""The recipe of a run; views and learning rates that papers share.

`learning_rate` is the value for the optimizer, not a rate per 256 images; `linear_scaling` computes
it from the batch size.
"""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Generic, Literal, TypeVar

import tyro

from pretrain.data.views import ViewRecipe
from pretrain.parts.view import Arch, Stem
from pretrain.running.ranges import (
    MAX_SIDE_PX,
    Dimension,
    Fraction,
    Momentum,
    NotNegative,
    Positive,
    PositiveCount,
    QueueSize,
    Range,
)

Config = TypeVar("Config")
Schedule = Literal["cosine", "step"]
Description = Annotated[str, tyro.conf.Suppress]
"""A text about a recipe; not a command-line option."""
Fact = Annotated[int, tyro.conf.Suppress]
"""A number from the paper; not a command-line option."""

EffectiveWith = Mapping[str, tuple[str, Container[object]]]
"""Option -> another option, and its values that make the first effective."""

MOCO_V2_VIEWS = ViewRecipe()
MOCO_V1_VIEWS = ViewRecipe(jitter_probability=1.0, hue=0.4, gray_first=True, blur_probability=0.0)
"""Grayscale before jitter, and jitter always.
From the code of He et al., arXiv:1911.05722."""
SWAV_VIEWS = ViewRecipe(
    crop_area=(0.14, 1.0),
    brightness=0.8,
    contrast=0.8,
    saturation=0.8,
    hue=0.2,
    std=(0.228, 0.224, 0.225),
)
"""Multi-crop, including the std, from the code of SwAV.
Caron et al., arXiv:2006.09882."""
SIMCLR_VIEWS = ViewRecipe(
    crop_area=(0.08, 1.0), brightness=0.8, contrast=0.8, saturation=0.8, hue=0.2
)
"""Color distortion of strength 1: Chen et al., arXiv:2002.05709, appendix A."""
BYOL_VIEWS = ViewRecipe(
    crop_area=(0.08, 1.0),
    saturation=0.2,
    blur_probability=1.0,
    second_blur_probability=0.1,
    second_solarize_probability=0.2,
)
"""Two different views: Grill et al., arXiv:2006.07733, appendix B.
There, crops are resized bicubically."""
SUPERVISED_VIEWS = ViewRecipe(
    crop_area=(0.08, 1.0), jitter_probability=0.0, gray_probability=0.0, blur_probability=0.0
)
"""Crop and flip, as in torchvision's reference training."""


@dataclass(frozen=True, kw_only=True)
class KeySettings:
    """Settings of methods with a momentum encoder and a queue."""

    temperature: Positive = 0.2
    """Tau, temperature: divides cosine similarities."""
    queue_size: QueueSize = 65_536
    """K, number of keys in the queue."""
    momentum: Fraction = 0.999
    """Momentum of the momentum encoder, per step."""
    embedding_dim: Dimension = 128
    """d, dimension of the embeddings."""
    bn_splits: PositiveCount = 1
    """Groups of images in one process, each with separate batch-norm statistics."""


@dataclass(frozen=True, kw_only=True)
class Recipe(Generic[Config]):
    """Settings of a run, except its data folder and its seed."""

    effective_with: ClassVar[EffectiveWith] = {
        "milestones": ("schedule", ("step",)),
        "final_learning_rate": ("schedule", ("cosine",)),
        "trust_coefficient": ("optimizer", ("lars",)),
        "exclude_vectors": ("optimizer", ("lars",)),
    }

    method: Description
    """Name in METHODS."""
    config: Config
    arch: Arch = "resnet50"
    stem: Stem = "imagenet"
    images: Description = "ImageNet-1k train"
    """Images that the folder --data should contain."""
    views: ViewRecipe = MOCO_V2_VIEWS
    test_px: Annotated[int, Range(0, MAX_SIDE_PX)] = 0
    """Image size in px at which the backbone is evaluated.
    0: the size of the views."""
    epochs: Annotated[float, Range(0, 1e6)]
    """Length of the run and of its schedule, which may be fractional."""
    batch_size: Annotated[int, Range(2, 2**24)]
    """N, images per step over all processes. Changing it does not change the learning rate."""
    learning_rate: NotNegative
    final_learning_rate: NotNegative = 0.0
    """Learning rate at the end of a cosine schedule."""
    warmup_epochs: Annotated[float, Range(0, 1e6)] = 0.0
    """Epochs of linear warmup from 0. With --steps, the warmup keeps its fraction of the run."""
    schedule: Schedule = "cosine"
    milestones: tuple[Fraction, ...] = ()
    """Fractions of the run after which a step schedule divides the learning rate by ten."""
    schedule_unit: Literal["epoch", "step"] = "epoch"
    """Unit in which the learning rate and the method's schedules change; the papers' code uses
    epochs. With epoch, the learning rate has the value at the start of the epoch, and all other
    schedules have the value at its end. The momentum of target encoders always changes per step."""
    optimizer: Literal["sgd", "lars"] = "sgd"
    weight_decay: NotNegative = 1e-4
    sgd_momentum: Momentum = 0.9
    trust_coefficient: Positive = 0.001
    """Trust coefficient of LARS."""
    exclude_vectors: bool = True
    """LARS without scaling and weight decay for biases and batch norm."""
    paper: Description
    """Source of the numbers, and purpose of the run."""
    table_row: Description = ""
    """Published results that this run reproduces."""
    norm_groups: Fact = 0
    """Number of groups of shuffled batch norm in the paper, one per GPU.
    0: not stated."""


Recipes = Mapping[str, Recipe[Any]]
"""Name -> recipe of a run."""

RESNET18_IN100: Mapping[str, Any] = {"arch": "resnet18", "images": "ImageNet-100 train"}
RESNET18_CIFAR10: Mapping[str, Any] = {
    "arch": "resnet18",
    "stem": "cifar",
    "images": "CIFAR-10 train, as images",
}
LARS: Mapping[str, Any] = {"warmup_epochs": 10, "schedule_unit": "step", "optimizer": "lars"}
"""Optimizer and schedule of SimCLR and of most papers after it."""
STEPS: Mapping[str, Any] = {"schedule": "step", "milestones": (0.6, 0.8)}
"""Schedule of MoCo v1: epochs 120 and 160 of 200."""
LONGER_EPOCHS = (200, 400, 600, 800, 1000, 1200)
"""Lengths in LORAC's figure 4(a)."""


def with_config(recipe: Recipe[Any], table_row: str, **settings: Any) -> Recipe[Any]:
    """Return another table row's run, with other settings of the method."""
    return replace(recipe, config=replace(recipe.config, **settings), table_row=table_row)


def sweep(
    recipe: Recipe[Any], name: str, table_row: str, **values: Sequence[float]
) -> dict[str, Recipe[Any]]:
    """Return the same run for each value of one setting.

    The value is appended to the name and to the table row.
    """
    ((setting, points),) = values.items()
    return {
        f"{name}{point:g}": with_config(recipe, f"{table_row} {point:g}", **{setting: point})
        for point in points
    }


def linear_rate(batch_size: int, *, per_256: float) -> float:
    """Return a learning rate proportional to the batch size.

    Goyal et al., arXiv:1706.02677.
    """
    return per_256 * batch_size / 256


def linear_scaling(batch_size: int, *, per_256: float) -> dict[str, Any]:
    """Return the settings `batch_size` and `learning_rate`, which is proportional to it."""
    return {"batch_size": batch_size, "learning_rate": linear_rate(batch_size, per_256=per_256)}
