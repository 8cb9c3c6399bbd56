"""Runs of CO2: Wei et al., ICLR 2021, arXiv:2010.02217."""

from dataclasses import dataclass, replace

from pretrain.parts.view import Projector
from pretrain.recipes.recipe import MOCO_V1_VIEWS, STEPS, KeySettings, Recipe, Recipes, sweep
from pretrain.running.ranges import NotNegative, Positive


@dataclass(frozen=True, kw_only=True)
class CO2Config(KeySettings):
    """Settings of CO2; by default, the paper's for ImageNet-1k, MoCo v2."""

    temperature: Positive = 0.2
    """Tau, the temperature of instance discrimination; 0.07 on MoCo v1."""
    consistency_temperature: Positive = 0.05
    """Tau_con, temperature of the consistency loss; 0.04 on MoCo v1."""
    consistency_weight: NotNegative = 0.3
    """Alpha, weight of the consistency loss; 10 on MoCo v1."""
    projector: Projector = "mlp"
    """Kind of the projector; "linear" on MoCo v1."""


IN1K_V2 = Recipe(
    method="co2",
    config=CO2Config(),
    epochs=200,
    batch_size=256,
    learning_rate=0.03,
    paper="CO2 (arXiv:2010.02217) on MoCo v2",
    table_row="co2/table1-3, uniclr/table2: MoCo v2 + CO2",
    norm_groups=4,
)
IN1K_V1 = replace(
    IN1K_V2,
    config=CO2Config(
        temperature=0.07, projector="linear", consistency_temperature=0.04, consistency_weight=10.0
    ),
    views=MOCO_V1_VIEWS,
    **STEPS,
    paper="CO2 (arXiv:2010.02217) on MoCo",
    table_row="co2/table1-3: MoCo + CO2",
)
IN100_R18 = replace(
    IN1K_V1,
    arch="resnet18",
    images="ImageNet-100 train",
    paper="CO2 (arXiv:2010.02217), section 3.5; host and schedule as for ImageNet-1k",
    table_row="co2/fig2a: alpha 10; co2/fig2b: tau_con 0.04; co2/fig3: MoCo + CO2",
    norm_groups=0,
)


RECIPES: Recipes = {
    "co2/in1k-r50-v1": IN1K_V1,
    "co2/in1k-r50-v2": IN1K_V2,
    "co2/in100-r18": IN100_R18,
    # weight 0 is moco/in100-r18-v1
    **sweep(
        *(IN100_R18, "co2/in100-r18-weight", "co2/fig2a: alpha"),
        consistency_weight=(1.0, 3.0, 5.0, 20.0, 30.0),
    ),
    **sweep(
        *(IN100_R18, "co2/in100-r18-temperature", "co2/fig2b: tau_con"),
        consistency_temperature=(0.01, 0.02, 0.07, 0.1, 0.2),
    ),
}
