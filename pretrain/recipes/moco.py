"""Runs of MoCo and its variants.

v1: He et al., arXiv:1911.05722; v2: Chen et al., arXiv:2003.04297. v2's views are the default of
`ViewRecipe` in pretrain/data/views.py.
"""

from dataclasses import dataclass, replace
from typing import Any

from pretrain.parts.view import Augmentation, KeyForward, Projector
from pretrain.recipes.recipe import (
    LONGER_EPOCHS,
    MOCO_V1_VIEWS,
    RESNET18_IN100,
    STEPS,
    KeySettings,
    Recipe,
    Recipes,
    sweep,
)
from pretrain.running.ranges import Momentum, NotNegative, NumViews


@dataclass(frozen=True, kw_only=True)
class MoCoConfig(KeySettings):
    """Settings of MoCo; the defaults are v2's for ImageNet-1k."""

    projector: Projector = "mlp"
    """Kind of the projector; v1 has "linear"."""
    symmetric: bool = False
    """Each view is a query and a key, as in v2+.
    The loss is the mean of both directions."""
    label_smoothing: Momentum = 0.0
    """Probability mass spread over the negatives.
    A baseline of CO2, arXiv:2010.02217."""
    consistency_temperature: NotNegative = 0.05
    """Tau_con of CO2's consistency loss, which is only logged; 0: not logged."""
    shared: tuple[Augmentation, ...] = ()
    """Augmentations equal in both views: LooC's baseline "same for q and k"."""
    key_only: tuple[Augmentation, ...] = ()
    """Augmentations that only keys get: LooC's baseline "add-one"."""


@dataclass(frozen=True, kw_only=True)
class MultiKeyConfig(KeySettings):
    """Settings of the vanilla average; the defaults are JCL's for ImageNet-1k."""

    num_keys: NumViews = 5
    """M, number of positive keys per image, without the query."""
    key_forward: KeyForward = "concatenated"
    """Images in one batch-norm batch of the keys.
    Either all M views of a batch together, or one view at a time."""


IN1K_V2: Recipe[Any] = Recipe(
    method="moco",
    config=MoCoConfig(),
    epochs=200,
    batch_size=256,
    learning_rate=0.03,
    paper="MoCo v2 (arXiv:2003.04297)",
    table_row="jcl/table1-2, co2/table1-3, lorac/table1-4, uniclr/table2: MoCo v2",
    norm_groups=8,
)
IN1K_V1 = replace(
    IN1K_V2,
    config=MoCoConfig(temperature=0.07, projector="linear", consistency_temperature=0.04),
    views=MOCO_V1_VIEWS,
    **STEPS,
    paper="MoCo (arXiv:1911.05722)",
    table_row="jcl/table1-2, co2/table1-3, lorac/table1-4, uniclr/table2: MoCo",
)
IN100_R18_V1 = replace(
    IN1K_V1,
    **RESNET18_IN100,
    paper="CO2 (arXiv:2010.02217), section 3.5; host and schedule as for ImageNet-1k",
    table_row="co2/fig2a: alpha 0; co2/fig3: MoCo",
    norm_groups=0,
)
IN100_R18_V2 = replace(
    IN1K_V2,
    **RESNET18_IN100,
    epochs=100,
    batch_size=128,
    learning_rate=0.1,
    paper="JCL (arXiv:2009.14776), appendix E; LORAC (arXiv:2108.02696), section 6.2",
    table_row="jcl/fig3, lorac/table5, lorac/fig3, lorac/fig4a, lorac/fig4b, lorac/fig4c: MoCo v2",
    norm_groups=4,
)


RECIPES: Recipes = {
    "moco/in1k-r50-v1": IN1K_V1,
    "moco/in1k-r50-v2": IN1K_V2,
    "moco/in1k-r50-v2+": replace(
        IN1K_V2,
        config=MoCoConfig(symmetric=True),
        epochs=800,
        paper="LORAC (arXiv:2108.02696), Table I",
        table_row="lorac/table1: MoCo-v2+",
        norm_groups=0,
    ),
    "moco/in100-r18-v1": IN100_R18_V1,
    **sweep(
        *(IN100_R18_V1, "moco/in100-r18-v1-smoothing", "co2/label_smoothing:"),
        label_smoothing=(0.1, 0.01, 0.001),
    ),
    "moco/in100-r18-v2": IN100_R18_V2,
    **{
        f"moco/in100-r18-v2-epochs{epochs}": replace(
            IN100_R18_V2,
            epochs=epochs,
            paper="LORAC (arXiv:2108.02696), section 6.2",
            table_row=f"lorac/fig4a: {epochs} epochs",
        )
        for epochs in LONGER_EPOCHS
    },
    "multi_key/in100-r18": replace(
        IN100_R18_V2,
        method="multi_key",
        config=MultiKeyConfig(),
        paper="JCL (arXiv:2009.14776), eq. 3 with the settings of appendix D; never scored there",
        table_row="jcl/fig1b: vanilla",
        norm_groups=0,
    ),
}
