"""Runs of VICReg: Bardes et al., ICLR 2022, arXiv:2105.04906.

Deviations: crops are bilinear, and residual branches are initialized as in torchvision, not to
zero.
"""

from dataclasses import dataclass, replace

from pretrain.recipes.recipe import BYOL_VIEWS, LARS, Recipe, Recipes, linear_rate, linear_scaling
from pretrain.running.ranges import Dimension, NotNegative


@dataclass(frozen=True, kw_only=True)
class VICRegConfig:
    """Settings of VICReg; the defaults are the paper's for ImageNet."""

    invariance_weight: NotNegative = 25.0
    """Lambda, weight of the invariance."""
    variance_weight: NotNegative = 25.0
    """Mu, weight of the variance term, summed over both views.
    The released code takes the mean, which equals 12.5 here."""
    covariance_weight: NotNegative = 1.0
    """Nu, weight of the covariance."""
    hidden_dim: Dimension = 8192
    """Width of the projector's (the paper's expander's) two hidden layers."""
    embedding_dim: Dimension = 8192
    """D, dimension of the embeddings."""
    sync_bn: bool = True
    """Batch norm over the images of all processes."""


IN1K = Recipe(
    method="vicreg",
    config=VICRegConfig(),
    # one distribution for both views, the mean of BYOL's two
    views=replace(
        BYOL_VIEWS,
        blur_probability=0.5,
        second_blur_probability=None,
        solarize_probability=0.1,
        second_solarize_probability=None,
    ),
    epochs=1000,
    **linear_scaling(2048, per_256=0.2),
    final_learning_rate=0.002,
    **LARS,
    weight_decay=1e-6,
    paper="VICReg (arXiv:2105.04906), as printed",
    table_row="uniclr/table2: VICReg",
)
RECIPES: Recipes = {
    "vicreg/in1k-r50": IN1K,
    "vicreg/in1k-r50-code": replace(
        IN1K,
        config=VICRegConfig(variance_weight=12.5),
        views=BYOL_VIEWS,
        final_learning_rate=linear_rate(2048, per_256=0.0002),
        paper="VICReg (arXiv:2105.04906), as in the released code: half the variance "
        "weight, BYOL's two different views, another final learning rate",
    ),
}
