"""The run of Barlow Twins: Zbontar et al., ICML 2021, arXiv:2103.03230.

Deviations: crops are bilinear, and residual branches are initialized as in torchvision, not to
zero. `loss_scale` multiplies the loss, which with LARS changes only the steps of biases and batch
norm; the paper's weight decay is multiplied by it as well. The first release of the code scaled the
loss, but not the decay.
"""

from dataclasses import dataclass

from pretrain.recipes.recipe import BYOL_VIEWS, LARS, Recipe, Recipes, linear_rate, linear_scaling
from pretrain.running.ranges import Dimension, NotNegative, Positive


@dataclass(frozen=True, kw_only=True)
class BarlowTwinsConfig:
    """Settings of Barlow Twins; the defaults are the paper's for ImageNet."""

    off_diagonal_weight: NotNegative = 5e-3
    """Lambda; the released code has 0.0051."""
    loss_scale: Positive = 0.024
    """Factor of the loss.
    With LARS, it only determines the learning rate of biases and batch norm, since the weight decay
    is scaled as well: the paper's 0.0048, where weights have 0.2."""
    hidden_dim: Dimension = 8192
    """Width of the projector's two hidden layers."""
    embedding_dim: Dimension = 8192
    """D, dimension of the embeddings."""
    sync_bn: bool = True
    """Batch norm over the images of all processes."""


RECIPES: Recipes = {
    "barlow_twins/in1k-r50": Recipe(
        method="barlow_twins",
        config=BarlowTwinsConfig(),
        views=BYOL_VIEWS,
        epochs=1000,
        **linear_scaling(2048, per_256=0.2),
        final_learning_rate=linear_rate(2048, per_256=0.0002),
        **LARS,
        weight_decay=BarlowTwinsConfig.loss_scale * 1.5e-6,
        paper="Barlow Twins (arXiv:2103.03230); the released code decays weights by 1e-6",
        table_row="lorac/table1, uniclr/table2: Barlow Twins",
    ),
}
