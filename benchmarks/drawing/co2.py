"""Figures of CO2, arXiv:2010.02217, on ImageNet-100."""

from collections.abc import Mapping

from benchmarks.drawing.figure import Figure, PublishedPoint
from benchmarks.drawing.log_curves import LogCurves
from benchmarks.drawing.pictures import stated
from benchmarks.drawing.sweeps import Probe, Sweep, Swept

BASE = "co2/in100-r18"
PROBE = Probe("co2-2021", "in100_linear@co2")


def co2(recipes: Mapping[str, float]) -> tuple[Swept, ...]:
    """Return the line of MoCo + CO2 with these recipes."""
    return (Swept(label="MoCo + CO2", method="co2", recipes=recipes, probe=PROBE),)


MOCO = Swept(
    label="MoCo",
    method="moco",
    recipes={"moco/in100-r18-v1": 0},
    # MoCo v2 and MoCo with label smoothing are other rows of the paper
    where={"config.label_smoothing": 0.0},
    shared=("config.projector",),
    probe=PROBE,
)

FIGURES: tuple[Figure, ...] = (
    Sweep(
        id="co2/fig2a",
        what="accuracy against α, the weight of the consistency term",
        setting="config.consistency_weight",
        symbol="α",
        lines=co2({f"{BASE}-weight{v}": v for v in (1, 3, 5, 20, 30)} | {BASE: 10}),
        levels=(MOCO,),
        published=(
            PublishedPoint(
                label="best in the paper",
                x=stated("co2/fig2a", "best_alpha"),
                y=stated("co2/fig2a", "best_top1"),
            ),
            PublishedPoint(
                label="MoCo in the paper", x=0.0, y=stated("co2/fig2a", "without_consistency_top1")
            ),
        ),
    ),
    Sweep(
        id="co2/fig2b",
        what="accuracy against the temperature of the consistency term τ_con",
        setting="config.consistency_temperature",
        symbol="τ_con",
        lines=co2(
            {f"{BASE}-temperature{v:g}": v for v in (0.01, 0.02, 0.07, 0.1, 0.2)} | {BASE: 0.04}
        ),
        log_x=True,
        remarks=("The paper states that τ_con = 0.04 is best.",),
    ),
    LogCurves(
        id="co2/fig3",
        what="losses and instance accuracy during pre-training",
        metrics={
            "instance_discrimination": "loss of instance discrimination",
            "consistency": "consistency loss",
            "instance_accuracy": "instance accuracy (%)",
        },
        methods={"moco": "MoCo", "co2": "MoCo + CO2"},
        recipes={"moco": "moco/in100-r18-v1", "co2": BASE},
        last_step_only={"moco": ("consistency",)},
        same="config.consistency_temperature",
        stated_ends={
            "moco": stated("co2/fig3", "inst_acc_moco_final"),
            "co2": stated("co2/fig3", "inst_acc_co2_final"),
        },
        remarks=(
            "MoCo's consistency loss is only measured, not trained. The paper states that it jumps "
            "early and stays high, while CO2's is low from the start and grows slowly.",
        ),
    ),
)
