"""The ImageNet run of W-MSE 4: Ermolov et al., ICML 2021, arXiv:2007.06346.

Its code is SimCLR's with another loss: sub-batches of twice as many rows as features, cut once.
Projector, optimizer, rate and views are therefore SimCLR's, arXiv:2002.05709; the paper's runs on
small images use Adam, which is not here.
"""

from collections.abc import Mapping
from typing import Any

from pretrain.methods.wmse import WMSEConfig
from pretrain.recipes.recipe import SIMCLR_VIEWS, Recipe, linear_rate

RECIPES: Mapping[str, Recipe[Any]] = {
    "wmse/in1k-r50": Recipe(
        method="wmse",
        config=WMSEConfig(num_views=4, hidden_dim=2048),
        arch="resnet50",
        images="ImageNet-1k train",
        views=SIMCLR_VIEWS,
        epochs=400,
        batch_size=1024,
        learning_rate=linear_rate(1024, per_256=0.3),
        warmup_epochs=10,
        schedule_unit="step",
        optimizer="lars",
        weight_decay=1e-6,
        paper="W-MSE 4 (arXiv:2007.06346); what it takes from SimCLR's code is as in SimCLR",
        table_row="uniclr/table2: W-MSE",
    ),
}
