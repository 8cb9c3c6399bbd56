"""The published runs and a few small ones: method, data, views, schedule, batch.

`learning_rate` is what the optimizer gets; where it follows from a batch size, the call is here.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Generic, Literal, TypeVar

import tyro

from pretrain.methods.jcl import JCLConfig
from pretrain.optim import Schedule
from pretrain.parts.resnet import Stem
from pretrain.views import ViewRecipe

Config = TypeVar("Config")
Said = Annotated[str, tyro.conf.Suppress]
"""Words about a recipe, no option of the command line."""

MOCO_V2_VIEWS = ViewRecipe()
CIFAR_VIEWS = ViewRecipe(size_px=32, blur_probability=0.0)


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
    """N, images per step, all processes."""
    learning_rate: float
    schedule: Schedule = "cosine"
    milestones: tuple[float, ...] = ()
    """Shares of the run after which a step schedule divides the rate by ten."""
    schedule_unit: Literal["epoch", "step"] = "epoch"
    """How often rate and ramps change; papers' code does so once per epoch."""
    weight_decay: float = 1e-4
    sgd_momentum: float = 0.9
    paper: Said
    """Where the numbers come from, and what the run is for."""
    table_row: Said = ""
    """Result of the paper that this run stands for."""


def linear_rate(batch_size: int, *, per_256: float) -> float:
    """Learning rate in proportion to the batch: Goyal et al., arXiv:1706.02677."""
    return per_256 * batch_size / 256


RECIPES: Mapping[str, Recipe[Any]] = {
    "jcl/in1k-r50": Recipe(
        method="jcl",
        config=JCLConfig(num_keys=5, covariance_weight=4.0, covariance_ramp="constant"),
        arch="resnet50",
        images="ImageNet-1k train",
        epochs=200,
        batch_size=512,
        learning_rate=0.06,
        paper="JCL (arXiv:2009.14776), as printed",
        table_row="jcl/table1, jcl/table2: JCL",
    ),
    "jcl/in1k-r50-code": Recipe(
        method="jcl",
        config=JCLConfig(num_keys=4, covariance_weight=2.0, covariance_ramp="linear"),
        arch="resnet50",
        images="ImageNet-1k train",
        epochs=200,
        batch_size=256,
        learning_rate=0.03,
        paper="JCL (arXiv:2009.14776), as in the released script",
        table_row="jcl/table1, jcl/table2: JCL",
    ),
    "jcl/in100-r18": Recipe(
        method="jcl",
        config=JCLConfig(),
        arch="resnet18",
        images="ImageNet-100 train",
        epochs=100,
        batch_size=128,
        learning_rate=0.1,
        paper="JCL (arXiv:2009.14776), appendix D",
        table_row="jcl/fig2: M' 5, lambda 4.0, temperature 0.2",
    ),
    "jcl/cifar10": Recipe(
        method="jcl",
        # a queue must be much younger, in steps, than 1 / (1 - momentum): else queries tell the
        # positives by their age alone, and all outputs drift together
        config=JCLConfig(num_keys=3, queue_size=2048, momentum=0.99, bn_splits=4),
        arch="resnet18",
        stem="cifar",
        images="CIFAR-10 train, as images",
        views=CIFAR_VIEWS,
        epochs=200,
        batch_size=256,
        learning_rate=linear_rate(256, per_256=0.06),
        schedule_unit="step",
        weight_decay=5e-4,
        paper="ours: JCL at the scale of one GPU or a few CPU cores",
    ),
    "jcl/cifar10-cpu": Recipe(
        method="jcl",
        # while a queue holds the noise it starts with, all outputs are drawn to one point: it is
        # eight batches long, so that a short run leaves this phase after eight steps
        config=JCLConfig(num_keys=2, queue_size=1024, momentum=0.99, bn_splits=4),
        arch="resnet18",
        stem="cifar",
        images="CIFAR-10 train, as images",
        views=ViewRecipe(size_px=16, blur_probability=0.0),
        # a random crop is three quarters of the side on average: objects keep their size
        test_px=20,
        epochs=3,
        batch_size=128,
        learning_rate=linear_rate(128, per_256=0.06),
        schedule_unit="step",
        weight_decay=5e-4,
        paper="ours: what two CPU cores do in a quarter of an hour",
    ),
    "jcl/demo": Recipe(
        method="jcl",
        config=JCLConfig(num_keys=2, queue_size=128, momentum=0.95, bn_splits=2),
        arch="resnet18",
        images="generated images",
        views=ViewRecipe(size_px=32),
        epochs=10,
        batch_size=64,
        learning_rate=linear_rate(64, per_256=0.12),
        schedule_unit="step",
        paper="ours: shows the whole job within two minutes on two CPU cores",
    ),
    "jcl/smoke": Recipe(
        method="jcl",
        config=JCLConfig(num_keys=2, queue_size=48, momentum=0.9, bn_splits=2),
        arch="resnet18",
        images="any images",
        views=ViewRecipe(size_px=32),
        epochs=2,
        batch_size=16,
        learning_rate=0.03,
        paper="ours: a few seconds, for tests",
    ),
}
"""Name -> run."""
