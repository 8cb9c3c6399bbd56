"""The published runs and a few small ones, and before them the settings of each method.

A run is method, data, views, schedule and batch. The settings stand here, not beside the method,
so that recipes are listed and their options are shown without torch.

Each paper has a file with the name of its method in pretrain/methods. The others are:

recipe.py  the recipe of a run, and the views that papers share
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
