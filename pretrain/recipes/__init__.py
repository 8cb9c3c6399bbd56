"""The published runs and a few small ones, and before them the settings of each method.

A run is method, data, views, schedule and batch. The settings stand here, not beside the method,
so that recipes are listed and their options are shown without torch.

recipe.py  the recipe of a run, and the views that papers share
moco.py    MoCo and its variants
jcl.py     JCL
co2.py     CO2
lorac.py   LORAC and MoCo-M
uniclr.py  SimAffinity, SimWhitening, SimTrace
instdisc.py  instance discrimination by a bank
simclr.py  SimCLR
byol.py    BYOL
simsiam.py SimSiam
swav.py    SwAV
dino.py    DINO
ressl.py   ReSSL
nnclr.py   NNCLR
barlow_twins.py  Barlow Twins
vicreg.py  VICReg
wmse.py    W-MSE
zero_cl.py Zero-CL
looc.py    LooC, its baselines, and supervised training
baselines.py  settings of supervised training and of a random network
small.py   every method on CIFAR-10, and for tests
"""

from collections.abc import Mapping
from typing import Any

from pretrain.recipes import (
    barlow_twins,
    byol,
    co2,
    dino,
    instdisc,
    jcl,
    looc,
    lorac,
    moco,
    nnclr,
    ressl,
    simclr,
    simsiam,
    small,
    swav,
    uniclr,
    vicreg,
    wmse,
    zero_cl,
)
from pretrain.recipes.recipe import Config, Recipe
from pretrain.running.plugins import with_plugins

__all__ = ["RECIPES", "Config", "Recipe"]

FAMILIES = (
    *(jcl, moco, co2, lorac, uniclr, instdisc, simclr, byol, simsiam, swav, dino, ressl, nnclr),
    *(barlow_twins, vicreg, wmse, zero_cl, looc, small),
)
OWN: Mapping[str, Recipe[Any]] = {
    name: recipe for family in FAMILIES for name, recipe in family.RECIPES.items()
}
RECIPES = with_plugins(OWN, "recipes")
"""Name -> recipe of a run."""
