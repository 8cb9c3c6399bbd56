"""Runs of instance discrimination: Wu et al., CVPR 2018, arXiv:1805.01978."""

from dataclasses import dataclass

from pretrain.recipes.recipe import MOCO_V1_VIEWS, STEPS, Recipe, Recipes
from pretrain.running.ranges import Count, Dimension, Momentum, NotNegative, Positive, PositiveCount


@dataclass(frozen=True, kw_only=True)
class InstDiscConfig:
    """Settings of instance discrimination; the defaults are the paper's for ImageNet-1k."""

    num_images: PositiveCount = 1_281_167
    """Rows of the bank: the number of images in --data."""
    num_negatives: Count = 4096
    """m, rows of the bank drawn as negatives for each image.
    0: no sampling; the loss is the softmax over all rows, as in the released code."""
    temperature: Positive = 0.07
    """Tau, temperature: divides cosine similarities."""
    bank_momentum: Momentum = 0.5
    """Fraction of the old row that an update of the bank keeps.
    The default is the released code's; the paper has 0."""
    proximal_weight: NotNegative = 0.0
    """Lambda of eq. 10: pulls embeddings to their rows.
    The released code has 0."""
    embedding_dim: Dimension = 128
    """d, dimension of the embeddings."""


RECIPES: Recipes = {
    "instdisc/in1k-r50": Recipe(
        method="instdisc",
        config=InstDiscConfig(),
        views=MOCO_V1_VIEWS,  # MoCo v1 took them from the code of this paper
        epochs=200,
        batch_size=256,
        learning_rate=0.03,
        **STEPS,
        paper="InstDisc (arXiv:1805.01978), as in the released code",
        table_row="jcl/table1, co2/table1-3, uniclr/table2: InstDisc, NPID",
    ),
}
