"""The ImageNet run of W-MSE 4: Ermolov et al., ICML 2021, arXiv:2007.06346.

The paper uses code and settings of Chen et al., 2020b, taken here to be SimCLRv2, arXiv:2006.10029:
a projector of three layers, LARS, rate, decay, warm-up and views. The authors released a loss for
that code, but no script of the run. Departures from SimCLRv2: the projector does not end in a norm,
which whitening would cancel, and LARS, crops, pixels and residual branches are as in simclr.py.
Departure from the released loss, which cuts the batch in the order of its rows: each step draws an
order, as in the authors' code for smaller images. That code uses Adam, which is not here.
"""

from collections.abc import Mapping
from typing import Any

from pretrain.configs.wmse import WMSEConfig
from pretrain.recipes.recipe import SIMCLR_VIEWS, Recipe, linear_rate

RECIPES: Mapping[str, Recipe[Any]] = {
    "wmse/in1k-r50": Recipe(
        method="wmse",
        config=WMSEConfig(num_views=4, hidden_dim=2048, num_hidden=2),
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
        paper="W-MSE 4 (arXiv:2007.06346), in SimCLRv2's code (arXiv:2006.10029) and settings",
        table_row="uniclr/table2: W-MSE",
    ),
}
