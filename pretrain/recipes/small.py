"""Small runs of every method: CIFAR-10, demo and smoke test.

They are ours, not the papers', and share one schedule, so that methods can be compared. Only the
cifar10 recipes of UniCLR's three methods, ReSSL and NNCLR are in their methods' files.
"""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any

from pretrain.data.views import ViewRecipe
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
    swav,
    uniclr,
    vicreg,
    wmse,
    zero_cl,
)
from pretrain.recipes.recipe import RESNET18_CIFAR10, Recipe, Recipes, linear_scaling

FAMILIES = (
    *(jcl, moco, co2, lorac, uniclr, instdisc, simclr, byol, simsiam, swav, dino, ressl, nnclr),
    *(barlow_twins, vicreg, wmse, zero_cl, looc),
)
"""Published runs, in the order of --list."""


@dataclass(frozen=True, kw_only=True)
class RandomConfig:
    """No settings: a random network depends only on the seed."""


TEMPERATURE = 0.1
"""Temperature of all methods with a queue.
Small images and short runs need less than 0.2."""

EQUAL_VIEWS: Mapping[str, Any] = {"num_large_views": 3, "num_small_views": 0, "num_keys": 1}
"""Views of LORAC as in figure 4(b).
Small crops of 16 px are too coarse."""

CONFIGS: Mapping[str, Any] = {
    "moco": moco.MoCoConfig(temperature=TEMPERATURE),
    "multi_key": moco.MultiKeyConfig(temperature=TEMPERATURE, num_keys=2),
    # weights of variance and norm are scaled with the lower temperature
    "jcl": jcl.JCLConfig(temperature=TEMPERATURE, num_keys=2, covariance_weight=1.0),
    "co2": co2.CO2Config(temperature=TEMPERATURE),
    "moco_m": lorac.LORACConfig(temperature=TEMPERATURE, prior="none", **EQUAL_VIEWS),
    "lorac": lorac.LORACConfig(temperature=TEMPERATURE, beta=4.0, **EQUAL_VIEWS),
    "simaffinity": uniclr.UniCLRConfig(variant="affinity", embedding_dim=256, hidden_dim=512),
    "simwhitening": uniclr.UniCLRConfig(
        variant="whitening", embedding_dim=64, hidden_dim=512, ridge=1e-2
    ),
    "simtrace": uniclr.UniCLRConfig(variant="trace", embedding_dim=64, hidden_dim=512, ridge=1e-2),
    "looc": looc.LooCConfig(temperature=TEMPERATURE, designated=("color",)),
    "loocpp": looc.LooCConfig(temperature=TEMPERATURE, designated=("color",), conv5_heads=True),
    "mocopp": looc.MoCoPPConfig(temperature=TEMPERATURE, num_heads=2),
    # the softmax over all rows: with sampled rows and a constant Z, a few steps only move all
    # embeddings together. A bank needs many epochs, so a short run needs few images
    "instdisc": instdisc.InstDiscConfig(
        temperature=TEMPERATURE, num_images=50_000, num_negatives=0
    ),
    "simclr": simclr.SimCLRConfig(temperature=0.5, hidden_dim=512),
    "byol": byol.BYOLConfig(hidden_dim=512, embedding_dim=128),
    "simsiam": simsiam.SimSiamConfig(hidden_dim=512, predictor_dim=64, embedding_dim=256),
    # these losses are sums over features and images: for plain SGD they are scaled to the size of
    # the others. With fewer features there are fewer pairs, so correlations get more weight
    "barlow_twins": barlow_twins.BarlowTwinsConfig(
        off_diagonal_weight=0.05, loss_scale=0.02, hidden_dim=512, embedding_dim=128
    ),
    "vicreg": vicreg.VICRegConfig(
        invariance_weight=1.0,
        variance_weight=1.0,
        covariance_weight=0.2,
        hidden_dim=512,
        embedding_dim=128,
    ),
    "wmse": wmse.WMSEConfig(whitening_size=64, hidden_dim=512, embedding_dim=32),
    "zero_cl": zero_cl.ZeroCLConfig(loss_scale=0.01, hidden_dim=512, embedding_dim=128),
    # two large views, as small crops would be too coarse; few outputs for few images and short
    # runs. Less sharp targets of DINO collapse to the uniform distribution here
    "swav": swav.SwAVConfig(
        epsilon=0.03,
        num_prototypes=64,
        prototypes_from=0.01,
        queue_from=0.1,
        num_small_views=0,
        hidden_dim=512,
        embedding_dim=64,
    ),
    "dino": dino.DINOConfig(
        target_temperature=0.04,
        output_dim=256,
        temperature_warmup=0.0,
        last_layer_from=0.01,
        num_small_views=0,
        hidden_dim=512,
        embedding_dim=64,
    ),
    "ressl": ressl.ReSSLConfig(hidden_dim=512, embedding_dim=128),
    "nnclr": nnclr.NNCLRConfig(hidden_dim=512, predictor_dim=512, embedding_dim=128),
    "supervised": looc.SupervisedConfig(num_classes=10),
    "random": RandomConfig(),
}
"""Method -> settings at every small scale.
`at_scale` adds the settings of queues."""

MULTI_CROP: Mapping[str, Any] = {"num_large_views": 2, "num_small_views": 2, "num_keys": 2}
SMOKE_CONFIGS = {
    **CONFIGS,
    "moco_m": replace(CONFIGS["moco_m"], **MULTI_CROP),
    "lorac": replace(CONFIGS["lorac"], **MULTI_CROP),
    "swav": replace(CONFIGS["swav"], num_small_views=2),
    "dino": replace(CONFIGS["dino"], num_small_views=2),
    "wmse": replace(CONFIGS["wmse"], whitening_size=8, embedding_dim=4),
}

CIFAR_VIEWS = ViewRecipe(size_px=32, small_size_px=24, blur_probability=0.0)
CIFAR10: Recipe[Any] = Recipe(
    method="",
    config=None,
    **RESNET18_CIFAR10,
    views=CIFAR_VIEWS,
    epochs=200,
    **linear_scaling(256, per_256=0.06),
    schedule_unit="step",
    weight_decay=5e-4,
    paper="ours: the method at the scale of one GPU",
)
CIFAR10_CPU = replace(
    CIFAR10,
    views=replace(CIFAR_VIEWS, size_px=16, small_size_px=12),
    # the side of a random crop is 3/4 of the image's on average: objects keep their size
    test_px=20,
    epochs=1,
    **linear_scaling(64, per_256=0.12),
    paper="ours: what a CPU core does in some minutes",
)
SMOKE: Recipe[Any] = Recipe(
    method="",
    config=None,
    arch="resnet18",
    images="any images",
    views=ViewRecipe(size_px=32, small_size_px=16),
    epochs=2,
    batch_size=16,
    learning_rate=0.03,
    paper="ours: a few seconds, for tests",
)


def at_scale(recipe: Recipe[Any], method: str, config: Any, **queue: Any) -> Recipe[Any]:
    """Return a method's run at a scale.

    queue: settings of queues; only those that the method has are used.
    """
    names = {field.name for field in fields(config)}
    settings = {name: value for name, value in queue.items() if name in names}
    recipe = replace(recipe, method=method, config=replace(config, **settings))
    return replace(recipe, epochs=0) if method == "random" else recipe


# Keys must be replaced in far fewer steps than 1 / (1 - momentum): otherwise queries recognize the
# positive by its age, and all outputs drift together. While a queue holds its initial noise, all
# outputs are pulled to one point, so a short run needs a short queue
RECIPES: Recipes = {
    **{
        f"{method}/cifar10": at_scale(
            CIFAR10, method, config, queue_size=2048, momentum=0.99, bn_splits=4
        )
        for method, config in CONFIGS.items()
        if f"{method}/cifar10" not in {**uniclr.RECIPES, **ressl.RECIPES, **nnclr.RECIPES}
    },
    **{
        f"{method}/cifar10-cpu": at_scale(
            CIFAR10_CPU, method, config, queue_size=512, momentum=0.99, bn_splits=2
        )
        for method, config in CONFIGS.items()
    },
    **{
        f"{method}/smoke": at_scale(SMOKE, method, config, queue_size=48, momentum=0.9, bn_splits=2)
        for method, config in SMOKE_CONFIGS.items()
    },
    "jcl/demo": Recipe(
        method="jcl",
        config=jcl.JCLConfig(num_keys=2, queue_size=128, momentum=0.95, bn_splits=2),
        arch="resnet18",
        images="generated images",
        views=ViewRecipe(size_px=32),
        epochs=10,
        **linear_scaling(64, per_256=0.12),
        schedule_unit="step",
        paper="ours: shows the whole job within two minutes on two CPU cores",
    ),
}
