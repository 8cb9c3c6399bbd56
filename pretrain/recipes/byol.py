"""Runs of BYOL: Grill et al., NeurIPS 2020, arXiv:2006.07733.

Deviation: the target network starts as a copy of the online network; in the released code it has
its own random weights.
"""

from dataclasses import dataclass, replace
from typing import Any

from pretrain.recipes.recipe import BYOL_VIEWS, LARS, Recipe, Recipes, linear_rate, linear_scaling
from pretrain.running.ranges import Dimension, Fraction


@dataclass(frozen=True, kw_only=True)
class BYOLConfig:
    """Settings of BYOL; the defaults are for 1000 ImageNet-1k epochs."""

    momentum: Fraction = 0.996
    """Tau_base, initial momentum of the target encoder, per step.
    It rises to 1 by half a cosine."""
    hidden_dim: Dimension = 4096
    """Width of the hidden layer of projector and predictor."""
    embedding_dim: Dimension = 256
    """d, dimension of the embeddings."""
    sync_bn: bool = True
    """Batch norm over all processes' images, as in the released code."""


IN1K: Recipe[Any] = Recipe(
    method="byol",
    config=BYOLConfig(),
    views=BYOL_VIEWS,
    epochs=1000,
    **linear_scaling(4096, per_256=0.2),
    **LARS,
    weight_decay=1.5e-6,
    paper="BYOL (arXiv:2006.07733), section 3.3; crops are resized bilinearly, not bicubically",
    table_row="arXiv:2006.07733, table 1: BYOL",
)
EPOCHS300 = replace(
    IN1K,
    config=BYOLConfig(momentum=0.99),
    epochs=300,
    learning_rate=linear_rate(4096, per_256=0.3),
    weight_decay=1e-6,
    paper="BYOL (arXiv:2006.07733), its ablations; crops are resized bilinearly, not bicubically",
    table_row="arXiv:2006.07733, table 5: tau_base 0.99",
)


def with_epochs(epochs: int, table_row: str) -> Recipe[Any]:
    """Return a run of another length, as in SimSiam's reproduction of BYOL.

    Other papers print these results.
    """
    # SimSiam states no learning rates; BYOL's code has presets for 40, 100, 300 and 1000 epochs
    return replace(
        EPOCHS300,
        epochs=epochs,
        paper=f"BYOL (arXiv:2006.07733), its settings for 300 epochs; the number of {epochs} is "
        "SimSiam's reproduction (arXiv:2011.10566, table 4)",
        table_row=table_row,
    )


RECIPES: Recipes = {
    "byol/in1k-r50": IN1K,
    "byol/in1k-r50-epochs300": EPOCHS300,
    "byol/in1k-r50-epochs200": with_epochs(200, "uniclr/table2: BYOL"),
    "byol/in1k-r50-epochs400": with_epochs(400, "lorac/table1: BYOL"),
}
