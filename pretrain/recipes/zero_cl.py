"""Runs of Zero-CL: Zhang et al., ICLR 2022.

Learning rates, weight decay, warm-up, LARS, views and, on CIFAR, widths are taken from the released
scripts for ImageNet-100 and CIFAR. The numbers of epochs and, on ImageNet-1k, the batch size are
UniCLR's. The following are our choices:
- the sum of both losses with equal weights; the scripts train with one loss at a time
- the width of 2048 on ImageNet; the scripts have 8192
- the batch size on CIFAR
- bilinear crops, and residual branches initialized as in torchvision, not to zero

Weight decays are the scripts' times the method's `loss_scale`.
"""

from dataclasses import dataclass, replace
from typing import Any

from pretrain.recipes.recipe import BYOL_VIEWS, LARS, Recipe, Recipes, linear_rate, linear_scaling
from pretrain.recipes.uniclr import CIFAR10, CIFAR100
from pretrain.running.ranges import Dimension, Positive


@dataclass(frozen=True, kw_only=True)
class ZeroCLConfig:
    """Settings of Zero-CL.

    The defaults are the released code's for ImageNet, except the widths.
    """

    ridge: Positive = 0.01
    """Number added to the variance of every direction before whitening.
    The variance is 1 on average. Without it, one covariance, of features or images, is singular."""
    loss_scale: Positive = 0.016
    """Factor of the loss.
    With LARS, it only determines the learning rate of biases and batch norm, since the recipes
    scale the weight decay as well: 0.0048, where weights have 0.3."""
    hidden_dim: Dimension = 2048
    """Width of the projector's two hidden layers; the released code has 8192."""
    embedding_dim: Dimension = 2048
    """D, dimension of the embeddings; the released code has 8192."""
    sync_bn: bool = True
    """Batch norm over the images of all processes."""


PAPER = "Zero-CL (openreview.net/forum?id=RAW9tCdVxLj), released scripts"
IN1K: Recipe[Any] = Recipe(
    method="zero_cl",
    config=ZeroCLConfig(),
    views=BYOL_VIEWS,
    epochs=400,
    **linear_scaling(1024, per_256=0.3),
    final_learning_rate=linear_rate(1024, per_256=0.0003),
    **LARS,
    weight_decay=ZeroCLConfig.loss_scale * 1e-6,
    trust_coefficient=0.02,
    paper=f"{PAPER}; epochs and batch of UniCLR (arXiv:2211.14516), Table 2",
    table_row="uniclr/table2: Zero-CL",
)
AT_256 = replace(
    IN1K,
    **linear_scaling(256, per_256=0.3),
    final_learning_rate=linear_rate(256, per_256=0.0003),
)


def cifar_row(uniclr: Recipe[Any], dataset: str) -> Recipe[Any]:
    """Return a row of UniCLR's Table 3, on small images.

    They are normalized as in UniCLR's runs.
    """
    views = replace(
        BYOL_VIEWS,
        size_px=32,
        blur_probability=0.0,
        second_blur_probability=None,
        mean=uniclr.views.mean,
        std=uniclr.views.std,
    )
    return replace(
        AT_256,
        config=ZeroCLConfig(embedding_dim=256),
        arch="resnet18",
        stem="cifar",
        images=uniclr.images,
        views=views,
        epochs=1000,
        weight_decay=ZeroCLConfig.loss_scale * 1e-4,
        paper=f"{PAPER}; the batch is ours",
        table_row=f"uniclr/table3: {dataset}",
    )


RECIPES: Recipes = {
    "zero_cl/in1k-r50": IN1K,
    "zero_cl/in100-r50": replace(
        AT_256,
        images="ImageNet-100 train",
        paper=f"{PAPER}; there with one loss at a time, on a network that the README does not name",
        table_row="uniclr/table3: ImageNet-100",
    ),
    "zero_cl/cifar10-r18": cifar_row(CIFAR10, "CIFAR-10"),
    "zero_cl/cifar100-r18": cifar_row(CIFAR100, "CIFAR-100"),
}
