"""The published runs and a few small ones: method, data, views, schedule, batch.

recipe.py  what a recipe is, and the views that papers share
moco.py    MoCo and its variants
jcl.py     JCL
co2.py     CO2
lorac.py   LORAC and MoCo-M
uniclr.py  SimAffinity, SimWhitening, SimTrace
looc.py    LooC, what it is compared with, and supervised training
small.py   every method on CIFAR-10, and for tests
"""

from collections.abc import Mapping
from typing import Any

from pretrain.recipes import co2, jcl, looc, lorac, moco, small, uniclr
from pretrain.recipes.recipe import Config, Recipe

__all__ = ["RECIPES", "Config", "Recipe"]

RECIPES: Mapping[str, Recipe[Any]] = {
    **jcl.RECIPES,
    **moco.RECIPES,
    **co2.RECIPES,
    **lorac.RECIPES,
    **uniclr.RECIPES,
    **looc.RECIPES,
    **small.RECIPES,
}
"""Name -> run."""
