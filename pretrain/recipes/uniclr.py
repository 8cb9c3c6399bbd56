"""Runs of SimAffinity, SimWhitening and SimTrace: Li et al., arXiv:2211.14516.

The paper does not state the following, so it is taken from papers that it cites:
- multi-crop (named in section 4.2.2, without numbers): two 224 px views of 14 to 100 % of the image
  and six 96 px views of 5 to 14 %, as in SwAV; every view is compared with both large ones.
- the momentum encoder (section 3.1, without a number): momentum 0.99, rising to 1 by half a cosine,
  as in MoCo v3.
- the predictor (section 4.2.2, without a shape): one hidden layer with a quarter of the embedding's
  width, 512 on ImageNet and 64 on CIFAR, as in SimSiam. With a predictor or a momentum encoder, the
  loss is the mean over both orders of the views, as in BYOL and SimSiam; the paper's equations have
  one order.
- the ridge of the covariance: as printed, the covariance is singular on ImageNet, with 2048
  features of 1024 rows (section 4.1).
- the optimizer, batch size and schedule on ImageNet-100 and CIFAR, for which the paper states only
  learning rates.
- the affine parameters of the projector's last norm layer: none, as in SimSiam.
- the parameters that LARS scales and decays: all but biases and norm layers, as in BYOL.
- the stem of the ResNet-18 on CIFAR: a 3 x 3 convolution of stride 1 and no pooling, as in SimCLR.
- batch norm over the images of all processes.

Two statements of the paper are ambiguous. First, the symmetric loss uses the affinities in equation
6, but the affinities divided by the temperature in algorithm 1. The runs follow the algorithm;
--sym-on affinity follows the equation.

Second, the covariance of equation 3 is a sum over rows, so the printed loss of SimTrace is D / 2
times the loss of these runs, which is between -1 and 1. With LARS, the scale only matters for
biases and batch norm. With SGD and weight decay, as on CIFAR (128 times at D = 256), it matters:
--variant trace_unscaled is the printed loss.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal

from pretrain.recipes.recipe import (
    LARS,
    MOCO_V2_VIEWS,
    RESNET18_CIFAR10,
    EffectiveWith,
    Recipe,
    Recipes,
    linear_scaling,
)
from pretrain.running.ranges import Dimension, Fraction, NotNegative, NumSmallViews, Positive

WHITENED = "variant", ("whitening", "trace", "trace_unscaled")
Variant = Literal["affinity", "whitening", "trace", "trace_unscaled"]


@dataclass(frozen=True, kw_only=True)
class UniCLRConfig:
    """Settings of UniCLR for ImageNet-1k, without training tricks.

    The defaults are the paper's, if stated. The top of this file lists numbers taken from
    elsewhere.
    """

    effective_with: ClassVar[EffectiveWith] = {
        **dict.fromkeys(
            ("ridge", "groups", "prenorm", "pooled_stats", "detach_covariance"), WHITENED
        ),
        **dict.fromkeys(("sym_on", "ce_both_directions"), ("variant", ("affinity", "whitening"))),
        "momentum": ("momentum_encoder", (True,)),
        "predictor_dim": ("predictor", (True,)),
    }

    variant: Variant = "affinity"
    """Loss: SimAffinity, SimWhitening or SimTrace.
    SimTrace is divided by N D; trace_unscaled is equation 3 as printed."""
    temperature: Positive | None = None
    """Tau, temperature: divides affinities.
    None: the paper's, 0.5 for affinity and 1 otherwise."""
    symmetry_weight: NotNegative | None = None
    """Gamma, weight of the symmetric loss.
    None: the paper's, 0 for trace and 0.01 otherwise."""
    sym_on: Literal["logits", "affinity"] = "logits"
    """Input of the symmetric loss.
    Affinities divided by the temperature (algorithm 1), or affinities (equation 6)."""
    ce_both_directions: bool = False
    """Cross-entropy over columns as well as rows; the paper has rows only."""
    ridge: NotNegative = 1.0
    """Fraction of the mean variance that is added to the covariance's diagonal.
    1e-3 is enough if there are more images than features."""
    groups: Dimension = 1
    """Number of feature groups, each whitened separately."""
    detach_covariance: bool = False
    """No gradient through the covariance."""
    prenorm: bool = False
    """Normalize rows before whitening, as in the code that was released later."""
    pooled_stats: bool = False
    """Compute one mean and covariance from all embeddings of a step.
    Otherwise, one for each pair of views."""
    affinity_scope: Literal["global", "local"] = "global"
    """Images that affinities and statistics use: of all processes, or of each."""
    momentum_encoder: bool = False
    """Compute the targets by a momentum encoder, without gradient."""
    momentum: Fraction = 0.99
    """Initial momentum of the momentum encoder, per step.
    It rises to 1 by half a cosine."""
    predictor: bool = False
    """Add a predictor to one branch; the other gets no gradient."""
    predictor_dim: Dimension = 512
    """Width of the predictor's hidden layer."""
    num_small_views: NumSmallViews = 0
    """Number of small views, besides two large ones; 6 with multi-crop."""
    hidden_dim: Dimension = 2048
    """Width of the projector's hidden layers."""
    embedding_dim: Dimension = 2048
    """D, dimension of the embeddings."""
    sync_bn: bool = True
    """Batch norm over the images of all processes."""

    def __post_init__(self) -> None:
        if self.is_trace and (self.tau != 1 or self.gamma != 0):
            raise ValueError(
                f"variant {self.variant} has temperature {self.tau:g} and symmetry_weight "
                f"{self.gamma:g}, but it uses no off-diagonal affinities: omit both, or set "
                f"temperature 1 and symmetry_weight 0"
            )
        if self.groups < 1 or self.embedding_dim % self.groups:
            raise ValueError(
                f"embedding_dim {self.embedding_dim} does not split into {self.groups} groups: "
                f"choose --groups so that it divides --embedding-dim"
            )

    @property
    def local_prior(self) -> bool:
        """Return whether affinities and statistics use one process's images only."""
        return self.affinity_scope == "local"

    @property
    def is_trace(self) -> bool:
        """Return whether the loss is SimTrace, in either scale."""
        return self.variant in ("trace", "trace_unscaled")

    @property
    def tau(self) -> float:
        """Temperature; the paper's by default."""
        if self.temperature is not None:
            return self.temperature
        return 0.5 if self.variant == "affinity" else 1.0

    @property
    def gamma(self) -> float:
        """Weight of the symmetric loss; the paper's by default."""
        if self.symmetry_weight is not None:
            return self.symmetry_weight
        return 0.0 if self.is_trace else 0.01


PAPER = "UniCLR (arXiv:2211.14516)"
LAST_NORM = "the projector's last norm without affine parameters"
LARS_SCOPE = "LARS without biases and norms"
"""Interpretations of the paper, for the descriptions of runs."""
METHOD_NAMES: Mapping[Variant, str] = {
    "affinity": "simaffinity",
    "whitening": "simwhitening",
    "trace": "simtrace",
}
MULTICROP_VIEWS = replace(MOCO_V2_VIEWS, crop_area=(0.14, 1.0))
TRICKS: Mapping[str, Any] = {"momentum_encoder": True, "num_small_views": 6, "predictor": True}

# 2048 features of at most 1024 rows: the covariance is singular without a large ridge
IN1K: Recipe[Any] = Recipe(
    method="simaffinity",
    config=UniCLRConfig(ridge=1.0),
    epochs=200,
    **linear_scaling(512, per_256=0.05),
    **LARS,
    weight_decay=1e-6,
    paper=f"{PAPER}; {LAST_NORM} and {LARS_SCOPE} are ours, since the paper states neither",
)
IN100 = replace(
    IN1K,
    images="ImageNet-100 train",
    paper=f"{PAPER}; optimizer and schedule as for ImageNet-1k, {LAST_NORM} and {LARS_SCOPE}; "
    "the paper states none",
)
# the paper does not say how images are normalized: by the dataset's mean and deviation
CIFAR10: Recipe[Any] = Recipe(
    method="simaffinity",
    config=UniCLRConfig(ridge=1e-3, embedding_dim=256, predictor_dim=64),
    **RESNET18_CIFAR10,
    views=replace(
        MOCO_V2_VIEWS, size_px=32, mean=(0.4914, 0.4822, 0.4465), std=(0.2470, 0.2435, 0.2616)
    ),
    epochs=1000,
    **linear_scaling(512, per_256=0.03),
    schedule_unit="step",
    weight_decay=5e-4,
    paper=f"{PAPER}; SGD, batch and weight decay are SimSiam's, the stem of CIFAR's ResNets and "
    f"{LAST_NORM} are ours; the paper states none",
)
CIFAR100 = replace(
    CIFAR10,
    images="CIFAR-100 train, as images",
    views=replace(CIFAR10.views, mean=(0.5071, 0.4865, 0.4409), std=(0.2673, 0.2564, 0.2762)),
)
CIFAR: Mapping[str, Recipe[Any]] = {"CIFAR-10": CIFAR10, "CIFAR-100": CIFAR100}


def with_loss(
    recipe: Recipe[Any], variant: Variant, table_row: str, **settings: Any
) -> Recipe[Any]:
    """Return a run of another loss, with other settings of the method."""
    config = replace(recipe.config, variant=variant, **settings)
    method = METHOD_NAMES[variant]
    views = MULTICROP_VIEWS if config.num_small_views else recipe.views
    return replace(recipe, method=method, config=config, views=views, table_row=table_row)


TABLE1_ROWS: Mapping[Variant, Sequence[str]] = {
    "whitening": (
        "",
        "temperature",
        "symmetric",
        "temperature symmetric",
        "symmetric momentum",
        "symmetric momentum multicrop",
        "symmetric momentum multicrop predictor",
    ),
    "affinity": (
        "",
        "temperature",
        "symmetric",
        "temperature symmetric",
        "temperature symmetric momentum",
        "temperature symmetric momentum multicrop",
        "temperature symmetric momentum multicrop predictor",
    ),
}
"""Loss -> check marks of its table rows, in order.
The last row of each loss is also in Table 2."""


def table1_rows() -> Iterator[tuple[str, Recipe[Any]]]:
    """Yield names and recipes of the rows of Table 1.

    The names contain the check marks.
    """
    marked = [(variant, marks) for variant, rows in TABLE1_ROWS.items() for marks in rows]
    for row, (variant, marks) in enumerate(marked, start=1):
        components = marks.split()
        name, table_row = "-".join(components) or "plain", f"uniclr/table1: row {row}"
        if "predictor" in components:  # the last row of each loss
            name, table_row = f"tricks-{name}", f"{table_row}; uniclr/table2"
        settings: dict[str, Any] = {
            "temperature": 0.5 if "temperature" in components else 1.0,
            "symmetry_weight": 0.01 if "symmetric" in components else 0.0,
            "momentum_encoder": "momentum" in components,
            "num_small_views": 6 * ("multicrop" in components),
            "predictor": "predictor" in components,
        }
        yield (
            f"{METHOD_NAMES[variant]}/in1k-r50-{name}",
            with_loss(IN1K, variant, table_row, **settings),
        )


def table3_rows(method: str, config: Any, paper: str, **views: Any) -> Recipes:
    """Return another method's rows of Table 3 on CIFAR.

    They have the optimizer, batch and views of UniCLR's own rows, except the given views' settings.
    """
    return {
        f"{method}/{dataset.lower().replace('-', '')}-r18": replace(
            recipe,
            method=method,
            config=config,
            views=replace(recipe.views, **views),
            paper=paper,
            table_row=f"uniclr/table3: {dataset}",
        )
        for dataset, recipe in CIFAR.items()
    }


RECIPES: Recipes = {
    **dict(table1_rows()),
    "simtrace/in1k-r50-plain": with_loss(IN1K, "trace", "uniclr/table2: SimTrace, plain"),
    "simtrace/in1k-r50-multicrop": with_loss(
        IN1K, "trace", "uniclr/table2: SimTrace, plain, if multi-crop counts", num_small_views=6
    ),
    "simtrace/in1k-r50-tricks": with_loss(IN1K, "trace", "uniclr/table2: SimTrace", **TRICKS),
    **{
        f"{name}/in100-r50": with_loss(IN100, variant, "uniclr/table3: ImageNet-100")
        for variant, name in METHOD_NAMES.items()
    },
    **{
        f"{name}/{dataset.lower().replace('-', '')}": with_loss(
            recipe, variant, f"uniclr/table3: {dataset}"
        )
        for dataset, recipe in CIFAR.items()
        for variant, name in METHOD_NAMES.items()
    },
    **{
        f"simaffinity/{dataset.lower().replace('-', '')}-fig2{end}": with_loss(
            replace(recipe, epochs=200), "affinity", f"uniclr/fig2: {dataset}, {curve}", **settings
        )
        for dataset, recipe in CIFAR.items()
        for end, curve, settings in (
            ("", "SimAffinity", {}),
            ("-without-t", "w/o T", {"temperature": 1.0}),
            ("-without-s", "w/o S", {"symmetry_weight": 0.0}),
            ("-without-ts", "w/o T&S", {"temperature": 1.0, "symmetry_weight": 0.0}),
        )
    },
}
