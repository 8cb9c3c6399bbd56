"""The published runs and a few small ones, and before them the settings of each method.

A run is method, data, views, schedule and batch. The settings stand here, not beside the method,
so that recipes are listed and their options are shown without torch.

Each paper has a file with the name of its method in pretrain/methods. The others are:

recipe.py  the recipe of a run, and what papers share: views; temperature, queue and momentum of
           methods with keys
looc.py    LooC, its baselines, and supervised training
small.py   every method on CIFAR-10, and for tests; the random network; the list of all files
"""

from collections.abc import Mapping
from typing import Any

from pretrain.recipes import small
from pretrain.recipes.recipe import Config, Recipe
from pretrain.running.plugins import with_plugins

__all__ = ["RECIPES", "Config", "Recipe"]

OWN: Mapping[str, Recipe[Any]] = {
    name: recipe for family in (*small.FAMILIES, small) for name, recipe in family.RECIPES.items()
}
RECIPES = with_plugins(OWN, "recipes")
"""Name -> recipe of a run."""
