"""The run of Barlow Twins: Zbontar et al., ICML 2021, arXiv:2103.03230.

Departures: crops are bilinear, and residual branches start as in torchvision, not at zero. The
method's `loss_scale` sets the rate of biases and batch norm, and the paper's decay is multiplied by
it too. The code's first release scaled its loss but not its decay.
"""

from collections.abc import Mapping
from typing import Any

from pretrain.configs.barlow_twins import BarlowTwinsConfig
from pretrain.recipes.recipe import BYOL_VIEWS, Recipe, linear_rate

RECIPES: Mapping[str, Recipe[Any]] = {
    "barlow_twins/in1k-r50": Recipe(
        method="barlow_twins",
        config=BarlowTwinsConfig(),
        arch="resnet50",
        images="ImageNet-1k train",
        views=BYOL_VIEWS,
        epochs=1000,
        batch_size=2048,
        learning_rate=linear_rate(2048, per_256=0.2),
        final_learning_rate=linear_rate(2048, per_256=0.0002),
        warmup_epochs=10,
        schedule_unit="step",
        optimizer="lars",
        weight_decay=BarlowTwinsConfig.loss_scale * 1.5e-6,
        paper="Barlow Twins (arXiv:2103.03230); the released code decays weights by 1e-6",
        table_row="lorac/table1, uniclr/table2: Barlow Twins",
    ),
}
