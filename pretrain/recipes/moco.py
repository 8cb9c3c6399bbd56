"""Runs of MoCo: He et al., arXiv:1911.05722; Chen et al., arXiv:2003.04297; and their variants."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pretrain.configs.moco import MoCoConfig
from pretrain.configs.multi_key import MultiKeyConfig
from pretrain.recipes.recipe import MOCO_V1_VIEWS, Recipe

V1 = MoCoConfig(temperature=0.07, projector="linear", consistency_temperature=0.04)

IN1K_V2: Recipe[Any] = Recipe(
    method="moco",
    config=MoCoConfig(),
    arch="resnet50",
    images="ImageNet-1k train",
    epochs=200,
    batch_size=256,
    learning_rate=0.03,
    paper="MoCo v2 (arXiv:2003.04297)",
    table_row="jcl/table1-2, co2/table1-3, lorac/table1-4, uniclr/table2: MoCo v2",
)
IN1K_V1 = replace(
    IN1K_V2,
    config=V1,
    views=MOCO_V1_VIEWS,
    schedule="step",
    milestones=(0.6, 0.8),
    paper="MoCo (arXiv:1911.05722)",
    table_row="jcl/table1-2, co2/table1-3, lorac/table1-4, uniclr/table2: MoCo",
)
IN100_R18_V1 = replace(
    IN1K_V1,
    arch="resnet18",
    images="ImageNet-100 train",
    paper="CO2 (arXiv:2010.02217), section 3.5; host and schedule as for ImageNet-1k",
    table_row="co2/fig2a: alpha 0; co2/fig3: MoCo",
)
IN100_R18_V2 = replace(
    IN1K_V2,
    config=MoCoConfig(),
    arch="resnet18",
    images="ImageNet-100 train",
    epochs=100,
    batch_size=128,
    learning_rate=0.1,
    paper="JCL (arXiv:2009.14776), appendix E; LORAC (arXiv:2108.02696), section 6.2",
    table_row="jcl/fig3, lorac/table5, lorac/fig3, lorac/fig4a, lorac/fig4b, lorac/fig4c: MoCo v2",
)


def with_label_smoothing(amount: float) -> Recipe[Any]:
    """Return MoCo v1 with smoothed labels."""
    return replace(
        IN100_R18_V1,
        config=replace(V1, label_smoothing=amount),
        table_row=f"co2/label_smoothing: {amount:g}",
    )


def with_epochs(epochs: int) -> Recipe[Any]:
    """Return a point of LORAC's figure 4(a)."""
    return replace(
        IN100_R18_V2,
        epochs=epochs,
        paper="LORAC (arXiv:2108.02696), section 6.2",
        table_row=f"lorac/fig4a: {epochs} epochs",
    )


RECIPES: Mapping[str, Recipe[Any]] = {
    "moco/in1k-r50-v1": IN1K_V1,
    "moco/in1k-r50-v2": IN1K_V2,
    "moco/in1k-r50-v2+": replace(
        IN1K_V2,
        config=MoCoConfig(symmetric=True),
        epochs=800,
        paper="LORAC (arXiv:2108.02696), Table I",
        table_row="lorac/table1: MoCo-v2+",
    ),
    "moco/in100-r18-v1": IN100_R18_V1,
    "moco/in100-r18-v1-smoothing0.1": with_label_smoothing(0.1),
    "moco/in100-r18-v1-smoothing0.01": with_label_smoothing(0.01),
    "moco/in100-r18-v1-smoothing0.001": with_label_smoothing(0.001),
    "moco/in100-r18-v2": IN100_R18_V2,
    **{
        f"moco/in100-r18-v2-epochs{epochs}": with_epochs(epochs)
        for epochs in (200, 400, 600, 800, 1000, 1200)
    },
    "multi_key/in100-r18": replace(
        IN100_R18_V2,
        method="multi_key",
        config=MultiKeyConfig(num_keys=5),
        paper="JCL (arXiv:2009.14776), eq. 3 with the settings of appendix D; never scored there",
        table_row="jcl/fig1b: vanilla",
    ),
}
