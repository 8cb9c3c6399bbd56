"""Runs of NNCLR: Dwibedi et al., ICCV 2021, arXiv:2104.14548.

The authors published no code. These settings are taken from reimplementations that cite the paper:
temperature 0.1, a queue of 98,304 projections of the first view, and BYOL's views. The loss has
four terms, for both views and for rows and columns. LARS has learning rate 0.3 per 256 images and
weight decay 1e-6, for 1000 epochs with batches of 4096 images. Projector and predictor are as
described in the paper.
"""

from dataclasses import dataclass, replace

from pretrain.data.views import ViewRecipe
from pretrain.recipes.recipe import (
    BYOL_VIEWS,
    LARS,
    RESNET18_CIFAR10,
    Recipe,
    Recipes,
    linear_scaling,
)
from pretrain.running.ranges import Dimension, Positive, QueueSize


@dataclass(frozen=True, kw_only=True)
class NNCLRConfig:
    """Settings of NNCLR; the defaults are our interpretation for ImageNet-1k."""

    temperature: Positive = 0.1
    """Tau, temperature: divides cosine similarities. From reimplementations."""
    queue_size: QueueSize = 98_304
    """Number of past projections to search for neighbors; from reimplementations."""
    hidden_dim: Dimension = 2048
    """Width of the projector's two hidden layers."""
    predictor_dim: Dimension = 4096
    """Width of the predictor's hidden layer."""
    embedding_dim: Dimension = 256
    """d, dimension of the embeddings."""
    sync_bn: bool = True
    """Batch norm over the images of all processes; from reimplementations."""


IN1K = Recipe(
    method="nnclr",
    config=NNCLRConfig(),
    views=BYOL_VIEWS,
    epochs=1000,
    **linear_scaling(4096, per_256=0.3),
    **LARS,
    weight_decay=1e-6,
    paper="NNCLR (arXiv:2104.14548); no code of the authors; settings of reimplementations",
    table_row="nnclr/abstract, nnclr/transfer: NNCLR",
)
CIFAR10 = replace(
    IN1K,
    config=NNCLRConfig(
        temperature=0.2, queue_size=4096, predictor_dim=2048, embedding_dim=128, sync_bn=False
    ),
    **RESNET18_CIFAR10,
    views=ViewRecipe(size_px=32, blur_probability=0.0),
    epochs=200,
    batch_size=256,
    learning_rate=0.06,
    warmup_epochs=5,
    optimizer="sgd",
    weight_decay=5e-4,
    paper="NNCLR (arXiv:2104.14548) on small datasets, as in the MNN benchmark, not the paper",
    table_row="nnclr/reproductions: NNCLR (MNN benchmark)",
)

RECIPES: Recipes = {
    "nnclr/in1k-r50": IN1K,
    "nnclr/cifar10": CIFAR10,
    "nnclr/cifar100": replace(CIFAR10, images="CIFAR-100 train, as images"),
}
