"""The ImageNet run of W-MSE 4: Ermolov et al., ICML 2021, arXiv:2007.06346.

The paper uses code and settings of Chen et al., 2020b, which we take to be SimCLRv2,
arXiv:2006.10029. These settings are a projector of three layers, LARS, learning rate, weight decay,
warm-up and views. The authors released their loss for that code, but not the script of the run.

Deviations from SimCLRv2: the projector has no final norm layer, which whitening would cancel. LARS,
crops, normalization and residual branches are as in simclr.py. Deviation from the released loss,
which does not shuffle the batch: each step draws a random order, as in the authors' code for
smaller images. Their code trains with Adam, which we do not provide.
"""

from dataclasses import dataclass
from typing import Annotated

from pretrain.recipes.recipe import LARS, SIMCLR_VIEWS, Recipe, Recipes, linear_scaling
from pretrain.running.ranges import Dimension, NotNegative, NumViews, PositiveCount, Range


@dataclass(frozen=True, kw_only=True)
class WMSEConfig:
    """Settings of W-MSE.

    The defaults are the released code's for two views of ImageNet-100.
    """

    num_views: Annotated[int, Range(2, 1000)] = 2
    """V, number of views of an image (the paper's d).
    It is 2 in W-MSE 2, 4 in W-MSE 4."""
    whitening_size: PositiveCount = 256
    """Images in a sub-batch; twice the number of features in the paper."""
    num_orders: NumViews = 1
    """I, number of random divisions of a batch into sub-batches."""
    ridge: NotNegative = 0.0
    """Fraction of the mean variance added to a covariance's diagonal.
    The paper has none."""
    hidden_dim: Dimension = 1024
    """Width of the projector's hidden layers."""
    num_hidden: Annotated[int, Range(1, 100)] = 1
    """Number of hidden layers: 1 in the released code.
    SimCLRv2, which the paper used on ImageNet, has 2."""
    embedding_dim: Dimension = 128
    """D, dimension of the embeddings."""
    sync_bn: bool = True
    """Batch norm over the images of all processes."""

    def __post_init__(self) -> None:
        if self.ridge == 0 and self.whitening_size <= self.embedding_dim:
            raise ValueError(
                f"sub-batches of {self.whitening_size} rows cannot whiten {self.embedding_dim} "
                f"features: choose --whitening-size of at least twice --embedding-dim, or a --ridge"
            )


RECIPES: Recipes = {
    "wmse/in1k-r50": Recipe(
        method="wmse",
        config=WMSEConfig(num_views=4, hidden_dim=2048, num_hidden=2),
        views=SIMCLR_VIEWS,
        epochs=400,
        **linear_scaling(1024, per_256=0.3),
        **LARS,
        weight_decay=1e-6,
        paper="W-MSE 4 (arXiv:2007.06346), in SimCLRv2's code (arXiv:2006.10029) and settings",
        table_row="uniclr/table2: W-MSE",
    ),
}
