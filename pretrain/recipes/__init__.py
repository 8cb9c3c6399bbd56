"""The published runs, small runs, and each method's settings.

A recipe is a method with data, views, schedule and batch size. The settings are here and not with
the methods, so that --list and --help do not import torch.

Each method's file has the same name as in pretrain/methods. The other files are:

recipe.py  the recipe of a run; views, and settings of methods with keys, that papers share
looc.py    LooC, its baselines, and supervised training
small.py   every method on CIFAR-10 and for tests; the random network; the list of all files
"""

from collections.abc import Mapping
from typing import Any

from pretrain.recipes import small
from pretrain.recipes.recipe import Config, Recipe
from pretrain.running.plugins import with_plugins

__all__ = ["RECIPES", "Config", "Recipe"]

BUILT_IN: Mapping[str, Recipe[Any]] = {
    name: recipe for family in (*small.FAMILIES, small) for name, recipe in family.RECIPES.items()
}
RECIPES = with_plugins(BUILT_IN, "recipes")
"""Name -> recipe of a run."""
