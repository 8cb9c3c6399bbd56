"""Runs of LORAC and of MoCo-M, its control without prior.

Wang et al., arXiv:2108.02696. The paper contradicts itself about the optimizer. According to its
main text, LORAC and MoCo-M are trained with LARS, learning rate 1.8 and weight decay 1e-6. Appendix
A.2 says SGD with weight decay 1e-4, with the same sentences as JCL's appendix. These runs follow
the main text, like the released code. The same holds for the views: according to appendix A.2, all
experiments have MoCo v2's views.

The paper gives the projector's hidden width only for a ResNet-50, 2048. The width of 512 for a
ResNet-18, and LARS for all parameters, are taken from the released code.

For Table V the paper does not state beta of LORAC, LORAC-bs and L-sftmx-c: it is 2 here, the best
value of figure 3(a). It does not say either which views enter P of LORAC-bs (equation 15): here
they are the large queries of an image, as in Q, centered for each image.
"""

from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Literal

from pretrain.recipes.recipe import (
    LONGER_EPOCHS,
    MOCO_V2_VIEWS,
    RESNET18_IN100,
    SWAV_VIEWS,
    EffectiveWith,
    KeySettings,
    Recipe,
    Recipes,
    sweep,
    with_config,
)
from pretrain.running.ranges import (
    Fraction,
    NumSmallViews,
    NumViews,
    Positive,
    QueueSize,
    Range,
    Real,
)


@dataclass(frozen=True, kw_only=True)
class LORACConfig(KeySettings):
    """Settings of LORAC; the defaults are the paper's for ImageNet-1k."""

    effective_with: ClassVar[EffectiveWith] = {
        "beta": ("prior", ("laplace", "margin", "batch")),
        "margin": ("prior", ("margin",)),
        "batch_scope": ("prior", ("batch",)),
        "gaussian_center": ("prior", ("gaussian",)),
        "gaussian_variance": ("prior", ("gaussian",)),
        "prior_from": ("prior", ("laplace", "gaussian", "margin", "batch")),
        "legacy_untempered": ("prior", ("laplace", "gaussian", "margin", "batch")),
    }

    prior: Literal["laplace", "gaussian", "margin", "batch", "none"] = "laplace"
    """Prior h, or "none" for MoCo-M.
    A function of the nuclear norm of each image's Q (eq. 11, table V), of the batch's P (eq. 15),
    or a constant."""
    prior_from: Fraction = 0.5
    """Fraction of the run after which the prior is used.
    Before, beta is infinite."""
    beta: Positive = 4.0
    """Beta, width of the Laplace, margin and batch-wise priors."""
    gaussian_center: Real = 5**0.5
    """c_o, a nuclear norm.
    The paper's is the square root of the number of rows of Q."""
    gaussian_variance: Positive = 2.0
    """Sigma^2 of the Gaussian prior."""
    margin: Real = 3.0
    """c of the margin, a nuclear norm."""
    batch_scope: Literal["local", "global"] = "local"
    """Images that the batch-wise prior uses.
    local: of one process. global: of all processes."""
    temperature: Positive = 0.2
    """Tau, temperature: divides cosine similarities and the exponent of the prior."""
    legacy_untempered: bool = False
    """Use temperature 1 once the prior is used.
    The released code does this erroneously. The paper keeps tau."""
    num_large_views: Annotated[int, Range(2, 1000)] = 3
    """Number of views of the recipe's large size."""
    num_small_views: NumSmallViews = 5
    """Number of views of the small size; all are queries."""
    num_keys: NumViews = 2
    """Number of key views.
    If several, the first large views are both keys and queries. If one, the last large view is the
    key and not a query (figure 4(b), M = num_large_views)."""
    q_rows: Literal["large_and_keys", "per_key", "all_views"] = "large_and_keys"
    """Embeddings that are the rows of Q.
    large_and_keys: large queries and all keys (released code). per_key: one key and the large
    queries of the other views (eq. 12). all_views: all queries and all keys."""
    queue_size: QueueSize = 65_536
    """K, number of keys in each of the num_keys queues.
    The paper names one queue; its code has two."""

    @property
    def local_prior(self) -> bool:
        """Return whether the prior is over the images of one process."""
        return self.prior == "batch" and self.batch_scope == "local"


IN1K: Recipe[Any] = Recipe(
    method="lorac",
    config=LORACConfig(),
    views=SWAV_VIEWS,
    epochs=200,
    batch_size=256,
    learning_rate=1.8,
    final_learning_rate=0.018,
    schedule_unit="step",
    optimizer="lars",
    exclude_vectors=False,
    weight_decay=1e-6,
    paper="LORAC (arXiv:2108.02696), as printed in the main text, not in appendix A.2 (SGD); "
    "two queues and the rows of Q as in the released code",
    table_row="lorac/table1-4: LORAC",
    norm_groups=4,
)
IN100 = replace(
    IN1K,
    config=LORACConfig(beta=2.0),
    **RESNET18_IN100,
    epochs=100,
    batch_size=128,
    learning_rate=2.0,
    final_learning_rate=0.002,
    paper="LORAC (arXiv:2108.02696), section 6.2, not in appendix A.2 (SGD); the projector's "
    "hidden width of 512 as in the released code",
    table_row="lorac/table5, lorac/fig4c: LORAC; lorac/fig3: beta 2; lorac/fig4a: 100 epochs",
)


def without_prior(recipe: Recipe[Any], table_row: str = "") -> Recipe[Any]:
    """Return the same run without prior: MoCo-M."""
    row = table_row or recipe.table_row
    return replace(with_config(recipe, row, prior="none"), method="moco_m")


LONGER = {
    epochs: replace(IN100, epochs=epochs, table_row=f"lorac/fig4a: {epochs} epochs")
    for epochs in LONGER_EPOCHS
}
EQUAL_VIEWS = {
    number: replace(
        IN100,
        config=LORACConfig(beta=1.0, num_large_views=number, num_small_views=0, num_keys=1),
        views=MOCO_V2_VIEWS,
        table_row=f"lorac/fig4b: M {number}",
    )
    for number in range(2, 9)
}
"""Points of figure 4(b).
All views have one size, and one of them is the key."""

RECIPES: Recipes = {
    "lorac/in1k-r50": IN1K,
    "lorac/in1k-r50-code": replace(
        IN1K,
        config=LORACConfig(beta=3.0, legacy_untempered=True),
        paper="LORAC (arXiv:2108.02696), as in the released script: M beta 15, no temperature "
        "once the prior acts",
    ),
    "moco_m/in1k-r50": without_prior(IN1K, "lorac/table1-4: MoCo-M"),
    "lorac/in100-r18": IN100,
    "lorac/in100-r18-gaussian": with_config(IN100, "lorac/table5: Gauss.", prior="gaussian"),
    "lorac/in100-r18-batchwise": with_config(IN100, "lorac/table5: LORAC-bs", prior="batch"),
    "lorac/in100-r18-margin": with_config(IN100, "lorac/table5: L-sftmx-c", prior="margin"),
    "moco_m/in100-r18": without_prior(
        IN100,
        "lorac/table5, lorac/fig4c: MoCo-M; lorac/fig3: beta infinite; lorac/fig4a: 100 epochs",
    ),
    **sweep(
        IN100, "lorac/in100-r18-beta", "lorac/fig3: beta", beta=(0.25, 0.5, 1.0, 4.0, 8.0, 16.0)
    ),
    **{f"lorac/in100-r18-epochs{epochs}": recipe for epochs, recipe in LONGER.items()},
    **{
        f"moco_m/in100-r18-epochs{epochs}": without_prior(recipe)
        for epochs, recipe in LONGER.items()
    },
    **{f"lorac/in100-r18-views{number}": recipe for number, recipe in EQUAL_VIEWS.items()},
    **{
        f"moco_m/in100-r18-views{number}": without_prior(recipe)
        for number, recipe in EQUAL_VIEWS.items()
    },
}
