"""Runs of DINO on ResNets: Caron et al., ICCV 2021, arXiv:2104.14294."""

from dataclasses import dataclass, replace
from typing import ClassVar

from pretrain.recipes.recipe import LARS, MOCO_V2_VIEWS, Recipe, Recipes, linear_scaling
from pretrain.recipes.uniclr import IN100, table3_rows
from pretrain.running.ranges import Dimension, Fraction, Momentum, NumSmallViews, Positive


@dataclass(frozen=True, kw_only=True)
class DINOConfig:
    """Settings of DINO; by default, the authors' for 800 ResNet-50 epochs."""

    temperature: Positive = 0.1
    """Tau_s, temperature of the encoder's logits."""
    target_temperature: Positive = 0.07
    """Tau_t, temperature of the target encoder's logits after the warm-up."""
    first_target_temperature: Positive = 0.04
    """Tau_t at the start of the run."""
    temperature_warmup: Fraction = 50 / 800
    """Fraction of the run in which the target temperature grows linearly."""
    center_momentum: Momentum = 0.9
    """m of eq. 4, momentum of the center, per step."""
    momentum: Fraction = 0.996
    """Lambda, initial momentum of the target encoder, per step.
    It rises to 1 by half a cosine."""
    last_layer_from: Fraction = 1 / 800
    """Fraction of the run until which the last layer is frozen.
    The default is one epoch."""
    output_dim: Dimension = 60_000
    """K, number of outputs of the last layer."""
    num_small_views: NumSmallViews = 6
    """Number of small views, in addition to the two large ones."""
    hidden_dim: Dimension = 2048
    """Width of the head's hidden layers."""
    embedding_dim: Dimension = 256
    """d, number of inputs of the last layer."""
    head_norm: bool = True
    """Batch norm in the head, as for the authors' ResNets.
    Their transformers have none."""
    sync_bn: ClassVar[bool] = True
    """Batch norm over the images of all processes."""


VIEWS = replace(
    MOCO_V2_VIEWS,
    crop_area=(0.14, 1.0),
    saturation=0.2,
    blur_probability=1.0,
    second_blur_probability=0.1,
    second_solarize_probability=0.2,
    small_blur_probability=0.5,
)
"""Views of the released code, but with bilinear instead of bicubic crops."""
UNCLEAR = (
    "DINO in UniCLR (arXiv:2211.14516), Table 3, which does not say who ran it. Optimizer, batch "
    "size and views are UniCLR's, with equal augmentation of both views. The momentum is what "
    "DINO's code advises for small batches. Outputs and the temperature's warm-up are ours"
)


def small_config(epochs: int) -> DINOConfig:
    """Return the settings of UniCLR's Table 3: two views, and fewer outputs for fewer images."""
    return DINOConfig(
        output_dim=4096,
        num_small_views=0,
        momentum=0.9995,
        temperature_warmup=0.05,
        last_layer_from=1 / epochs,
    )


RECIPES: Recipes = {
    "dino/in1k-r50": Recipe(
        method="dino",
        config=DINOConfig(),
        views=VIEWS,
        epochs=800,
        **linear_scaling(4080, per_256=0.3),
        final_learning_rate=0.0048,
        **LARS,
        weight_decay=1e-6,
        paper="DINO (arXiv:2104.14294), arguments of the released ResNet-50",
        table_row="arXiv:2104.14294, table 2: DINO, RN50",
    ),
    "dino/in100-r50": replace(
        IN100,
        method="dino",
        config=small_config(epochs=400),
        epochs=400,
        paper=f"{UNCLEAR}; solo-learn's table has the same value, for a ResNet-18",
        table_row="uniclr/table3: ImageNet-100",
    ),
    **table3_rows("dino", small_config(epochs=1000), UNCLEAR),
}
