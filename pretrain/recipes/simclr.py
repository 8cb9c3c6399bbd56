"""Runs of SimCLR: Chen et al., ICML 2020, arXiv:2002.05709.

Deviations from the authors' code: LARS multiplies the momentum buffer by the learning rate, not the
gradient that is added to it, which makes a difference while the learning rate changes. Crops are
bilinear, not bicubic. Residual branches are initialized as in torchvision, not to zero. Images are
normalized, which the authors' code does not show.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

from pretrain.recipes.recipe import LARS, SIMCLR_VIEWS, Recipe, Recipes, linear_rate, linear_scaling
from pretrain.recipes.uniclr import table3_rows
from pretrain.running.ranges import Dimension, Positive


@dataclass(frozen=True, kw_only=True)
class SimCLRConfig:
    """Settings of SimCLR; the defaults are the paper's for ImageNet-1k."""

    temperature: Positive = 0.1
    """Tau, temperature: divides cosine similarities. 0.5 on CIFAR-10."""
    hidden_dim: Dimension = 2048
    """Width of the projector's hidden layer."""
    embedding_dim: Dimension = 128
    """d, dimension of the embeddings."""
    sync_bn: bool = True
    """Global batch norm over all processes' images (section 2.2)."""


IN1K: Recipe[Any] = Recipe(
    method="simclr",
    config=SimCLRConfig(),
    views=SIMCLR_VIEWS,
    epochs=1000,
    **linear_scaling(4096, per_256=0.3),
    **LARS,
    weight_decay=1e-6,
    paper="SimCLR (arXiv:2002.05709), section 2.2",
    table_row="co2/table1, lorac/table1: SimCLR, 1000 epochs",
)

UNCLEAR = (
    "SimCLR in UniCLR (arXiv:2211.14516), Table 3, and in Zero-CL's README, with the same value. "
    "Neither says who ran it: "
)


def root_rate(batch_size: int) -> float:
    """Return a learning rate proportional to the batch size's root (appendix B.1)."""
    return 0.075 * math.sqrt(batch_size)


RECIPES: Recipes = {
    "simclr/in1k-r50": IN1K,
    **{
        f"simclr/in1k-r50-epochs200-batch{size}": replace(
            IN1K,
            epochs=200,
            batch_size=size,
            learning_rate=rate,
            paper="SimCLR (arXiv:2002.05709), table B.1, learning rate proportional to the "
            f"{scale}",
            table_row=row,
        )
        for size, rate, scale, row in (
            (8192, linear_rate(8192, per_256=0.3), "batch size (figure 9)", "jcl/table1: SimCLR"),
            (4096, root_rate(4096), "root of the batch size", "uniclr/table2: SimCLR, batch 4096"),
            (256, root_rate(256), "root of the batch size", "uniclr/table2: SimCLR, batch 256"),
        )
    },
    "simclr/in100-r50": replace(
        IN1K,
        images="ImageNet-100 train",
        epochs=400,
        batch_size=256,
        learning_rate=root_rate(256),
        paper=f"{UNCLEAR}as on ImageNet-1k with this batch size; the README names no network",
        table_row="uniclr/table3: ImageNet-100",
    ),
    **table3_rows(
        "simclr",
        SimCLRConfig(temperature=0.5),
        f"{UNCLEAR}optimizer, batch and views are those of UniCLR's own rows, the temperature is "
        "SimCLR's",
    ),
}
