"""Figures of LORAC, arXiv:2108.02696, on ImageNet-100."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from benchmarks.drawing.figure import Figure
from benchmarks.drawing.histograms import Histograms
from benchmarks.drawing.kinds import VIEW_TASKS
from benchmarks.drawing.sweeps import Probe, Sweep, Swept, moco_v2
from benchmarks.drawing.tradeoffs import Tradeoff

BASE = "lorac/in100-r18"
PROBE = Probe("lorac-2021", "in100_linear@lorac")
MOCO_PROBE = Probe("lorac-2021-moco", "in100_linear@lorac-moco")
VIEWS = Probe("lorac-2021", "in100_view_statistics")
BETAS = {f"{BASE}-beta{v:g}": v for v in (0.25, 0.5, 1, 4, 8, 16)} | {BASE: 2.0}
LENGTHS = (200, 400, 600, 800, 1000, 1200)
LAPLACE = {"config.prior": "laplace"}
ONE_SIZE = {"config.num_small_views": 0, "config.num_keys": 1}


def lengths(base: str) -> dict[str, float]:
    """Return the recipes of several lengths of one method."""
    return {base: 100.0} | {f"{base}-epochs{n}": float(n) for n in LENGTHS}


def views(base: str) -> dict[str, float]:
    """Return the recipes with several numbers of views of one size."""
    return {f"{base}-views{n}": float(n) for n in range(2, 9)}


def lorac(recipes: Mapping[str, float], **where: Any) -> Swept:
    """Return the line of LORAC with these recipes."""
    return Swept(label="LORAC", method="lorac", recipes=recipes, where=LAPLACE | where, probe=PROBE)


def moco_m(recipes: Mapping[str, float], **where: Any) -> Swept:
    """Return the line of MoCo-M with these recipes."""
    return Swept(label="MoCo-M", method="moco_m", recipes=recipes, where=where, probe=PROBE)


MOCO_M_LEVEL = moco_m({"moco_m/in100-r18": 0})
MOCO_V2_LEVEL = moco_v2("MoCo-v2", {"moco/in100-r18-v2": 0}, MOCO_PROBE)

ACCURACY = Sweep(
    id="lorac/fig3a",
    what="accuracy against β, the width of the prior",
    setting="config.beta",
    symbol="β",
    lines=(lorac(BETAS),),
    levels=(MOCO_M_LEVEL, MOCO_V2_LEVEL),
    log_x=True,
    remarks=("The paper states that β = 2 is best and that β below 1 hurts.",),
)
NORM = Sweep(
    id="lorac/fig3b",
    what="mean nuclear norm of the matrix of an image's views against β",
    setting="config.beta",
    symbol="β",
    lines=tuple(replace(swept, probe=VIEWS) for swept in ACCURACY.lines),
    levels=tuple(replace(swept, probe=VIEWS) for swept in ACCURACY.levels),
    log_x=True,
    tasks=VIEW_TASKS,
    metric="mean_nuclear_norm",
    y_label="mean nuclear norm of 32 views",
    remarks=("The paper shows that the norm grows with β.",),
)

FIGURES: tuple[Figure, ...] = (
    ACCURACY,
    NORM,
    Tradeoff(
        id="lorac/fig3c",
        what="accuracy against the mean nuclear norm of the matrix of an image's views",
        across=NORM,
        upward=ACCURACY,
        x_label="mean nuclear norm of 32 views",
        symbol="β",
        remarks=("The paper shows that the best accuracy is between the extremes.",),
    ),
    Sweep(
        id="lorac/fig4a",
        what="accuracy against the length of pre-training",
        setting="epochs",
        symbol="epochs of pre-training",
        lines=(
            lorac(lengths(BASE)),
            moco_m(lengths("moco_m/in100-r18")),
            Swept(
                label="SwAV",
                method="swav",
                recipes=lengths("swav/in100-r18"),
                # shares of the run that stand for fixed numbers of epochs
                follows=("config.prototypes_from", "config.queue_from"),
                probe=PROBE,
            ),
            moco_v2("MoCo-v2", lengths("moco/in100-r18-v2"), MOCO_PROBE),
        ),
        remarks=("Each point is a run of its own, with its own schedule.",),
    ),
    Sweep(
        id="lorac/fig4b",
        what="accuracy against the number of views M of one size",
        setting="config.num_large_views",
        symbol="number of views M",
        lines=(
            lorac(views(BASE), **ONE_SIZE),
            moco_m(views("moco_m/in100-r18"), **ONE_SIZE),
        ),
        levels=(MOCO_V2_LEVEL,),
        remarks=("The paper states that accuracy grows with M and levels off beyond M = 6.",),
    ),
    Histograms(
        id="lorac/fig4c",
        what="histogram over images of the nuclear norm of the matrix of an image's views",
        statistic="mean_nuclear_norm",
        x_label="nuclear norm of 32 views",
        methods=(
            replace(lorac({BASE: 0}), probe=VIEWS),
            replace(MOCO_M_LEVEL, probe=VIEWS),
            replace(MOCO_V2_LEVEL, probe=VIEWS),
        ),
        lower=("LORAC", "MoCo-M"),
    ),
)
