"""Runs of SimSiam: Chen & He, CVPR 2021, arXiv:2011.10566.

Deviation: the last norm layer of each residual branch is initialized to one, as in torchvision; the
released code initializes it to zero.
"""

from dataclasses import dataclass, replace
from typing import Any

from pretrain.recipes.recipe import Recipe, Recipes, linear_scaling
from pretrain.recipes.uniclr import table3_rows
from pretrain.running.ranges import Dimension


@dataclass(frozen=True, kw_only=True)
class SimSiamConfig:
    """Settings of SimSiam; the defaults are the paper's for ImageNet-1k."""

    hidden_dim: Dimension = 2048
    """Width of the projector's hidden layers."""
    predictor_dim: Dimension = 512
    """Width of the predictor's hidden layer."""
    embedding_dim: Dimension = 2048
    """d, dimension of the embeddings."""
    sync_bn: bool = True
    """Batch norm over all processes' images, as in the released code."""


IN1K: Recipe[Any] = Recipe(
    method="simsiam",
    config=SimSiamConfig(),
    epochs=100,
    **linear_scaling(512, per_256=0.05),
    paper="SimSiam (arXiv:2011.10566), section 3",
    table_row="arXiv:2011.10566, table 2: batch 512",
)
EPOCHS200 = replace(
    IN1K,
    epochs=200,
    **linear_scaling(256, per_256=0.05),
    paper="SimSiam (arXiv:2011.10566), table 4",
    table_row="uniclr/table2: SimSiam",
)
UNCLEAR = "SimSiam in UniCLR (arXiv:2211.14516), Table 3, which does not say who ran it: "


RECIPES: Recipes = {
    "simsiam/in1k-r50": IN1K,
    "simsiam/in1k-r50-epochs200": EPOCHS200,
    "simsiam/in100-r50": replace(
        EPOCHS200,
        images="ImageNet-100 train",
        epochs=400,
        paper=f"{UNCLEAR}as on ImageNet-1k; solo-learn's table has the value, for SimCLR on a "
        "ResNet-18",
        table_row="uniclr/table3: ImageNet-100",
    ),
    **table3_rows(
        "simsiam",
        SimSiamConfig(),
        f"{UNCLEAR}as in SimSiam's appendix D, with three layers in the projector, not two",
        blur_probability=0.0,
    ),
}
