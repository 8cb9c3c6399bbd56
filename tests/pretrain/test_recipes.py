"""Recipes against the settings of the papers."""

from typing import Any

import pytest

from pretrain.methods import METHODS
from pretrain.recipes import RECIPES
from pretrain.views import ViewRecipe

JCL_EVERYWHERE = {
    "temperature": 0.2,
    "queue_size": 65_536,
    "momentum": 0.999,
    "embedding_dim": 128,
    "key_forward": "concatenated",
    "bn_splits": 1,
}
PUBLISHED: dict[str, dict[str, Any]] = {
    # as printed: five keys, constant lambda 4, batch 512, rate 0.06
    "jcl/in1k-r50": {
        "arch": "resnet50",
        "epochs": 200,
        "batch_size": 512,
        "learning_rate": 0.06,
        "num_keys": 5,
        "covariance_weight": 4.0,
        "covariance_ramp": "constant",
    },
    # as released: four keys, lambda ramped to 2, batch 256, rate 0.03
    "jcl/in1k-r50-code": {
        "arch": "resnet50",
        "epochs": 200,
        "batch_size": 256,
        "learning_rate": 0.03,
        "num_keys": 4,
        "covariance_weight": 2.0,
        "covariance_ramp": "linear",
    },
    # appendix D
    "jcl/in100-r18": {
        "arch": "resnet18",
        "epochs": 100,
        "batch_size": 128,
        "learning_rate": 0.1,
        "num_keys": 5,
        "covariance_weight": 4.0,
        "covariance_ramp": "constant",
    },
}


@pytest.mark.parametrize("name", PUBLISHED)
def test_a_published_run_has_the_papers_numbers(name: str) -> None:
    recipe = RECIPES[name]
    found = vars(recipe) | vars(recipe.config)
    expected = {
        **JCL_EVERYWHERE,
        "stem": "imagenet",
        "schedule": "cosine",
        "schedule_unit": "epoch",
        "weight_decay": 1e-4,
        "sgd_momentum": 0.9,
        **PUBLISHED[name],
    }
    assert {key: found[key] for key in expected} == expected


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_runs_use_the_views_of_moco_v2(name: str) -> None:
    assert RECIPES[name].views == ViewRecipe(
        size_px=224,
        crop_area=(0.2, 1.0),
        crop_aspect=(3 / 4, 4 / 3),
        jitter_probability=0.8,
        brightness=0.4,
        contrast=0.4,
        saturation=0.4,
        hue=0.1,
        gray_probability=0.2,
        blur_probability=0.5,
        blur_sigma_px=(0.1, 2.0),
        flip_probability=0.5,
        mean=(0.485, 0.456, 0.406),
        std=(0.229, 0.224, 0.225),
    )


def test_every_recipe_fits_its_method() -> None:
    for name, recipe in RECIPES.items():
        _, config = METHODS[recipe.method]
        assert isinstance(recipe.config, config)
        assert name.split("/")[0] == recipe.method
        assert recipe.batch_size % recipe.config.bn_splits == 0
        assert recipe.batch_size <= recipe.config.queue_size


def test_every_method_has_a_smoke_recipe() -> None:
    assert {f"{method}/smoke" for method in METHODS} <= RECIPES.keys()
