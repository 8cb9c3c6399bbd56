"""Runs of SwAV: Caron et al., NeurIPS 2020, arXiv:2006.09882.

Numbers missing in the paper are taken from the released script. Deviations from it: the learning
rate warms up from 0, not from 0.3, and batch norm is synchronized over all processes, not over
groups of eight.
"""

from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

from pretrain.recipes.recipe import (
    LARS,
    LONGER_EPOCHS,
    SWAV_VIEWS,
    EffectiveWith,
    Recipe,
    Recipes,
    with_config,
)
from pretrain.running.ranges import (
    Dimension,
    Fraction,
    NumSmallViews,
    Positive,
    Range,
)

MAX_QUEUE = 2**27


@dataclass(frozen=True, kw_only=True)
class SwAVConfig:
    """Settings of SwAV; by default, the paper's for 800 ImageNet-1k epochs."""

    effective_with: ClassVar[EffectiveWith] = {
        "queue_from": ("queue_size", range(1, MAX_QUEUE + 1))
    }

    temperature: Positive = 0.1
    """Tau, temperature: divides the cosines of embeddings and prototypes."""
    epsilon: Positive = 0.05
    """Epsilon, weight of the codes' entropy."""
    sinkhorn_iterations: Annotated[int, Range(1, 1000)] = 3
    """Iterations of eq. 5 per step."""
    num_prototypes: Dimension = 3000
    """K, number of prototypes."""
    prototypes_from: Fraction = 1 / 800
    """Fraction of the run until which the prototypes are frozen.
    The default is one epoch."""
    queue_size: Annotated[int, Range(0, MAX_QUEUE)] = 0
    """Number of embeddings of past steps that also get codes.
    It is the number per assigned view, over all processes. 0: none. Small batches need a queue, so
    that there are more embeddings than prototypes."""
    queue_from: Fraction = 0.0
    """Fraction of the run after which the queue is filled.
    It is used once it is full."""
    num_large_views: Annotated[int, Range(2, 1000)] = 2
    """Number of views of the recipe's large size; the first two get codes."""
    num_small_views: NumSmallViews = 6
    """Number of views of the small size; they get no codes."""
    hidden_dim: Dimension = 2048
    """Width of the projector's hidden layer."""
    embedding_dim: Dimension = 128
    """d, dimension of the embeddings."""
    sync_bn: ClassVar[bool] = True
    """Batch norm over the images of all processes."""


LARGE_BATCH = Recipe(
    method="swav",
    config=SwAVConfig(),
    views=SWAV_VIEWS,
    epochs=800,
    batch_size=4096,
    learning_rate=4.8,
    final_learning_rate=0.0048,
    **LARS,
    exclude_vectors=False,
    weight_decay=1e-6,
    paper="SwAV (arXiv:2006.09882), as in the released script",
    table_row="arXiv:2006.09882, table 2 and figure 2: SwAV",
)
SMALL_BATCH = replace(
    LARGE_BATCH,
    config=SwAVConfig(prototypes_from=1 / 200, queue_size=3840, queue_from=15 / 200),
    epochs=200,
    batch_size=256,
    learning_rate=0.6,
    final_learning_rate=0.0006,
    warmup_epochs=0,
    paper="SwAV (arXiv:2006.09882), as in the released script for small batches",
    table_row="lorac/table1-4: SwAV, 2×224 + 6×96",
)
IN100 = replace(
    SMALL_BATCH,
    config=SwAVConfig(
        num_large_views=3,
        num_small_views=5,
        prototypes_from=1 / 100,
        queue_size=3840,
        queue_from=15 / 100,
    ),
    arch="resnet18",
    images="ImageNet-100 train",
    epochs=100,
    batch_size=128,
    learning_rate=0.3,
    final_learning_rate=0.0003,
    paper="LORAC (arXiv:2108.02696), section 6.2, which states neither learning rate nor queue; "
    "they are from SwAV's released script, the rate in proportion to the batch",
    table_row="lorac/fig4a: 100 epochs",
)


RECIPES: Recipes = {
    "swav/in1k-r50": LARGE_BATCH,
    "swav/in1k-r50-2x224": replace(
        LARGE_BATCH,
        config=SwAVConfig(num_small_views=0, prototypes_from=1 / 400),
        views=replace(SWAV_VIEWS, crop_area=(0.08, 1.0)),
        epochs=400,
        table_row="uniclr/table2: SwAV",
    ),
    "swav/in1k-r50-2x224-6x96": SMALL_BATCH,
    "swav/in1k-r50-3x224-5x96": with_config(
        SMALL_BATCH, "lorac/table1: SwAV, 3×224 + 5×96", num_large_views=3, num_small_views=5
    ),
    "swav/in100-r18": IN100,
    **{
        f"swav/in100-r18-epochs{epochs}": replace(
            with_config(
                IN100,
                f"lorac/fig4a: {epochs} epochs",
                prototypes_from=1 / epochs,
                queue_from=15 / epochs,
            ),
            epochs=epochs,
        )
        for epochs in LONGER_EPOCHS
    },
}
