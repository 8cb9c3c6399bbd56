"""Runs of LooC and its baselines: Xiao et al., ICLR 2021, arXiv:2008.05659.

The paper contradicts itself about the number of heads. According to appendix F.1, LooC++ features
have 2048 dimensions times the number of augmentations, without the head that is invariant to all of
them. However, the main text concatenates all embedding spaces, and the 2 bits of entropy in figure
4 require four heads for three augmentations. These runs include the invariant head: three
augmentations have four heads and 8192 dimensions, and so does MoCo++.
"""

from dataclasses import dataclass, replace
from functools import partial
from typing import Annotated, Any

from pretrain.parts.view import Augmentation
from pretrain.recipes.moco import MoCoConfig
from pretrain.recipes.recipe import (
    MOCO_V2_VIEWS,
    STEPS,
    SUPERVISED_VIEWS,
    KeySettings,
    Recipe,
    Recipes,
    with_config,
)
from pretrain.running.ranges import Momentum, NumViews, QueueSize, Range


@dataclass(frozen=True, kw_only=True)
class LooCConfig(KeySettings):
    """Settings of LooC and LooC++; MoCo v2's where the paper names none."""

    designated: tuple[Augmentation, ...] = ("color", "rotation")
    """Augmentations that heads 1 to n preserve, in this order. None: MoCo."""
    conv5_heads: bool = False
    """Give each head its own layer4 (LooC++).
    The exported features are the concatenated features of all heads."""
    queue_size: QueueSize = 16_384
    """K, number of keys in the queue of each head."""


@dataclass(frozen=True, kw_only=True)
class MoCoPPConfig(KeySettings):
    """Settings of MoCo++; MoCo v2's where the paper names none."""

    num_heads: NumViews = 4
    """h, the number of heads of LooC++ with three designated augmentations."""
    queue_size: QueueSize = 16_384
    """K, number of keys in the queue of each head."""


@dataclass(frozen=True, kw_only=True)
class SupervisedConfig:
    """Settings of supervised training; the defaults are torchvision's for ImageNet-1k."""

    num_classes: Annotated[int, Range(1, 2**24)] = 1000
    """L, number of classes."""
    label_smoothing: Momentum = 0.0
    """Probability mass spread evenly over all classes."""


HALF = 0.5
"""Probability of rotating an image and of replacing its texture (appendix A)."""
ALL: tuple[Augmentation, ...] = ("color", "rotation", "texture")

MOCO: Recipe[Any] = Recipe(
    method="moco",
    config=MoCoConfig(queue_size=16_384),
    images="ImageNet-100 train",
    epochs=500,
    batch_size=256,
    learning_rate=0.03,
    **STEPS,
    paper="LooC (arXiv:2008.05659)",
    table_row="looc/table1-3, looc/table6, looc/fig3: MoCo",
)
SUPERVISED: Recipe[Any] = Recipe(
    method="supervised",
    config=SupervisedConfig(num_classes=1000),
    images="ImageNet-1k train, a folder per class",
    views=SUPERVISED_VIEWS,
    epochs=90,
    batch_size=256,
    learning_rate=0.1,
    schedule="step",
    milestones=(1 / 3, 2 / 3),
    paper="torchvision's reference training of ResNet-50",
    table_row="jcl/table2, co2/table1, co2/table3, lorac/table2, lorac/table4: supervised",
)


def moco(table_row: str, *added: Augmentation, **settings: Any) -> Recipe[Any]:
    """Return a run of MoCo v2, with rotation or texture if added."""
    views = replace(
        MOCO_V2_VIEWS,
        rotation_probability=HALF * ("rotation" in added),
        texture_probability=HALF * ("texture" in added),
    )
    return replace(with_config(MOCO, table_row, **settings), views=views)


def looc(table_row: str, *designated: Augmentation, conv5_heads: bool = False) -> Recipe[Any]:
    """Return a run of LooC, or of LooC++ with conv5_heads."""
    config = LooCConfig(designated=designated, conv5_heads=conv5_heads)
    method = "loocpp" if conv5_heads else "looc"
    return replace(moco(table_row, *designated), method=method, config=config)


loocpp = partial(looc, conv5_heads=True)


def imagenet_row(recipe: Recipe[Any], table_row: str) -> Recipe[Any]:
    """Return the same run on ImageNet-1k with MoCo v2's length and schedule.

    The paper does not state them.
    """
    return replace(
        recipe,
        images="ImageNet-1k train",
        epochs=200,
        schedule="cosine",
        milestones=(),
        paper=f"{recipe.paper}; 200 epochs with a cosine schedule are ours: the paper has a step "
        "schedule and no length",
        table_row=table_row,
    )


RECIPES: Recipes = {
    "supervised/in1k-r50": SUPERVISED,
    "supervised/in100-r50": replace(
        SUPERVISED,
        config=SupervisedConfig(num_classes=100),
        images="ImageNet-100 train, a folder per class",
        paper="LooC (arXiv:2008.05659); the recipe is torchvision's, since the paper states none",
        table_row="looc/table1, looc/table3: Supervised",
    ),
    "moco/in100-r50": MOCO,
    "moco/in100-r50-rotation": moco(
        "looc/table1, looc/table6, looc/fig3: MoCo + Rotation", "rotation"
    ),
    "moco/in100-r50-rotation-shared": moco(
        "looc/table1: MoCo + Rotation (same for q and k)", "rotation", shared=("rotation",)
    ),
    "moco/in100-r50-addone-color": moco("looc/table6: MoCo + AddOne, color", key_only=("color",)),
    "moco/in100-r50-addone-rotation": moco(
        "looc/table6: MoCo + AddOne, rotation", "rotation", key_only=("rotation",)
    ),
    "moco/in100-r50-color-rotation-texture": moco("looc/table4: MoCo", *ALL),
    "mocopp/in100-r50-color-rotation-texture": replace(
        moco("looc/table4: MoCo++", *ALL),
        method="mocopp",
        config=MoCoPPConfig(num_heads=1 + len(ALL)),
    ),
    "looc/in100-r50-color": looc("looc/table2, looc/table6, looc/fig3: LooC, color", "color"),
    "looc/in100-r50-rotation": looc(
        "looc/table1-3, looc/table6, looc/fig3: LooC, rotation", "rotation"
    ),
    "looc/in100-r50-texture": looc("looc/table3: LooC, texture", "texture"),
    "looc/in100-r50-color-rotation": looc(
        "looc/table2: LooC, color and rotation", "color", "rotation"
    ),
    "looc/in100-r50-rotation-texture": looc(
        "looc/table3: LooC, rotation and texture", "rotation", "texture"
    ),
    "looc/in100-r50-color-rotation-texture": looc("looc/table4: LooC", *ALL),
    "loocpp/in100-r50-color-rotation": loocpp("looc/table2: LooC++", "color", "rotation"),
    "loocpp/in100-r50-rotation-texture": loocpp("looc/table3: LooC++", "rotation", "texture"),
    "loocpp/in100-r50-color-rotation-texture": loocpp("looc/table4-5, looc/fig4: LooC++", *ALL),
    "moco/in1k-r50-looc": imagenet_row(MOCO, "looc/table7: MoCo"),
    "loocpp/in1k-r50-color-rotation-texture": imagenet_row(loocpp("", *ALL), "looc/table7: LooC++"),
}
