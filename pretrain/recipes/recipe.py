"""What a recipe is, and the views and rates that several papers share.

`learning_rate` is what the optimizer gets; where it follows from a batch size, the call is there.
"""

from dataclasses import dataclass
from typing import Annotated, Generic, Literal, TypeVar

import tyro

from pretrain.optim import OptimizerName, Schedule
from pretrain.parts.resnet import Stem
from pretrain.views import ViewRecipe

Config = TypeVar("Config")
Said = Annotated[str, tyro.conf.Suppress]
"""Words about a recipe, no option of the command line."""

MOCO_V2_VIEWS = ViewRecipe()
MOCO_V1_VIEWS = ViewRecipe(jitter_probability=1.0, hue=0.4, gray_first=True, blur_probability=0.0)
"""Grayscale first and jitter always: the code of He et al., arXiv:1911.05722."""
SWAV_VIEWS = ViewRecipe(
    crop_area=(0.14, 1.0),
    small_size_px=96,
    small_crop_area=(0.05, 0.14),
    brightness=0.8,
    contrast=0.8,
    saturation=0.8,
    hue=0.2,
    std=(0.228, 0.224, 0.225),
)
"""Multi-crop as in the code of Caron et al., arXiv:2006.09882, its std included."""
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
"""Two unlike views: Grill et al., arXiv:2006.07733, appendix B; they resize by bicubic crops."""
SUPERVISED_VIEWS = ViewRecipe(
    crop_area=(0.08, 1.0), jitter_probability=0.0, gray_probability=0.0, blur_probability=0.0
)
"""Crop and flip, as in torchvision's reference training."""


@dataclass(frozen=True, kw_only=True)
class Recipe(Generic[Config]):
    """Everything that shapes a run except its data folder and its seed."""

    method: Said
    """Name in METHODS."""
    config: Config
    arch: str
    stem: Stem = "imagenet"
    images: Said
    """What --data should hold."""
    views: ViewRecipe = MOCO_V2_VIEWS
    test_px: int = 0
    """Side of the images that the backbone is meant to be tested on; 0: the views'."""
    epochs: float
    """May be a fraction; the schedule ends with the run."""
    batch_size: int
    """N, images per step, all processes; changing it leaves the learning rate as it is."""
    learning_rate: float
    final_learning_rate: float = 0.0
    """Where a cosine ends."""
    warmup_epochs: float = 0.0
    """Of linear growth from 0; a run shortened by --steps warms up for the same share of it."""
    schedule: Schedule = "cosine"
    milestones: tuple[float, ...] = ()
    """Shares of the run after which a step schedule divides the rate by ten."""
    schedule_unit: Literal["epoch", "step"] = "epoch"
    """How often rate, ramps and a method's own schedules change; papers' code does so once per
    epoch. Within an epoch they stand where the epoch ends, the rate where it begins."""
    optimizer: OptimizerName = "sgd"
    weight_decay: float = 1e-4
    sgd_momentum: float = 0.9
    trust_coefficient: float = 0.001
    """Of LARS."""
    exclude_vectors: bool = True
    """LARS leaves biases and batch norm unscaled and undecayed."""
    paper: Said
    """Where the numbers come from, and what the run is for."""
    table_row: Said = ""
    """Result of the paper that this run stands for."""


def linear_rate(batch_size: int, *, per_256: float) -> float:
    """Learning rate in proportion to the batch: Goyal et al., arXiv:1706.02677."""
    return per_256 * batch_size / 256
