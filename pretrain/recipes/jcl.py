"""Runs of JCL: Cai et al., NeurIPS 2020, arXiv:2009.14776.

According to the paper, each step removes the oldest 256 keys from the queue, although its batches
of 512 images add 512 keys. The queue would then grow with each step. Here, each step removes as
many keys as it adds, as in the released code.
"""

from dataclasses import dataclass, replace
from typing import Literal

from pretrain.parts.view import KeyForward
from pretrain.recipes.recipe import RESNET18_IN100, KeySettings, Recipe, Recipes, sweep, with_config
from pretrain.running.ranges import NotNegative, NumViews


@dataclass(frozen=True, kw_only=True)
class JCLConfig(KeySettings):
    """Settings of JCL; the defaults are the paper's for ImageNet-1k."""

    covariance_weight: NotNegative = 4.0
    """Lambda of eq. 8."""
    covariance_ramp: Literal["constant", "linear"] = "constant"
    """Schedule of lambda: constant (paper), or a linear ramp (released code)."""
    num_keys: NumViews = 5
    """M', number of positive keys per image, without the query."""
    unit_mean: bool = False
    """Normalize mean keys before they enter the queue.
    The paper does not say; its code does not."""
    key_forward: KeyForward = "concatenated"
    """Images in one batch-norm batch of the keys.
    Either all M' views of a batch together (appendix C), or one view at a time."""


IN1K = Recipe(
    method="jcl",
    config=JCLConfig(),
    epochs=200,
    batch_size=512,
    learning_rate=0.06,
    paper="JCL (arXiv:2009.14776), as printed, but 512 keys leave the queue per step, not 256",
    table_row="jcl/table1-2, lorac/table1: JCL",
    norm_groups=8,
)
IN100 = replace(
    IN1K,
    **RESNET18_IN100,
    epochs=100,
    batch_size=128,
    learning_rate=0.1,
    paper="JCL (arXiv:2009.14776), appendix D",
    table_row="jcl/fig2a, jcl/fig2b, jcl/fig2c: M' 5, lambda 4, temperature 0.2",
    norm_groups=0,
)


RECIPES: Recipes = {
    "jcl/in1k-r50": IN1K,
    "jcl/in1k-r50-code": replace(
        IN1K,
        config=JCLConfig(num_keys=4, covariance_weight=2.0, covariance_ramp="linear"),
        batch_size=256,
        learning_rate=0.03,
        paper="JCL (arXiv:2009.14776), as in the released script",
    ),
    "jcl/in100-r18": IN100,
    **sweep(IN100, "jcl/in100-r18-keys", "jcl/fig2a: M'", num_keys=(1, 2, 3, 7, 11)),
    "jcl/in100-r18-keys9": with_config(IN100, "jcl/fig2a: M' 9; jcl/fig3: JCL", num_keys=9),
    **sweep(
        *(IN100, "jcl/in100-r18-covariance", "jcl/fig2b: lambda"),
        covariance_weight=(0.0, 0.2, 0.5, 1.0, 2.0, 6.0, 8.0, 10.0),
    ),
    **sweep(
        *(IN100, "jcl/in100-r18-temperature", "jcl/fig2c: temperature"),
        temperature=(0.05, 0.07, 0.1, 0.3, 0.4, 0.5),
    ),
}
