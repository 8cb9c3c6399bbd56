"""Runs of instance discrimination: Wu et al., CVPR 2018, arXiv:1805.01978."""

from collections.abc import Mapping
from typing import Any

from pretrain.configs.instdisc import InstDiscConfig
from pretrain.recipes.recipe import MOCO_V1_VIEWS, Recipe

RECIPES: Mapping[str, Recipe[Any]] = {
    "instdisc/in1k-r50": Recipe(
        method="instdisc",
        config=InstDiscConfig(),
        arch="resnet50",
        images="ImageNet-1k train",
        views=MOCO_V1_VIEWS,  # MoCo v1 took them over from the code of this paper
        epochs=200,
        batch_size=256,
        learning_rate=0.03,
        schedule="step",
        milestones=(0.6, 0.8),
        paper="InstDisc (arXiv:1805.01978), as in the released code",
        table_row="jcl/table1, co2/table1-3, uniclr/table2: InstDisc, NPID",
    ),
}
