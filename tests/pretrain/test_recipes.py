"""Recipes against the settings of the papers, and the papers' tables against the recipes."""

import re
from itertools import chain
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

from benchmarks.pages.published import papers
from pretrain import recipes
from pretrain.__main__ import main
from pretrain.methods import METHODS
from pretrain.parts.resnet import build_resnet
from pretrain.recipes import RECIPES, Recipe
from tests.pretrain.recipe_facts import exported_arch, tables_of

TABLES = {table.id: table for paper in papers() for table in paper.tables}


def is_ours(recipe: Recipe[Any]) -> bool:
    return recipe.paper.startswith("ours")


PUBLISHED = [name for name, recipe in RECIPES.items() if not is_ours(recipe)]


def test_every_recipe_stands_for_a_row_of_its_method_or_a_figure() -> None:
    for name in PUBLISHED:
        recipe = RECIPES[name]
        tables = tables_of(recipe)
        for table_id in tables:
            assert recipe.method in {row.method for row in TABLES[table_id].rows}, name
        assert tables or re.match(
            # the papers of other methods are not among our tables
            r"(jcl|co2|lorac)/(fig\d|label)|uniclr/fig2|(ressl|nnclr)/\w+(, nnclr/\w+)?: |"
            r"arXiv:\d{4}\.\d{5}, (table|figure) \d",
            recipe.table_row,
        )


def test_the_fourteen_rows_of_uniclr_have_their_check_marks() -> None:
    rows = TABLES["uniclr/table1"].rows
    chosen = []
    for row in rows:
        config = RECIPES[row.recipe].config
        chosen.append(row.recipe)
        assert dict(row.marks) == {
            "temperature": config.tau != 1,
            "symmetric_loss": config.gamma != 0,
            "whitening": config.variant == "whitening",
            "momentum": config.momentum_encoder,
            "multicrop": config.num_small_views > 0,
            "predictor": config.predictor,
        }
    assert len(set(chosen)) == len(rows) == 14


@pytest.mark.parametrize("table_id", ["looc/table2", "looc/table3"])
def test_designated_augmentations_are_the_ticked_ones(table_id: str) -> None:
    for row in TABLES[table_id].rows:
        if row.method in ("looc", "loocpp"):
            ticked = [name for name, mark in row.marks.items() if mark]
            recipe = RECIPES[f"{row.method}/in100-r50-{'-'.join(ticked)}"]
            assert list(recipe.config.designated) == ticked
            assert recipe.views.rotation_probability == 0.5 * ("rotation" in ticked)
            assert recipe.views.texture_probability == 0.5 * ("texture" in ticked)


def test_a_run_sees_as_many_views_as_its_paper_says(subtests: pytest.Subtests) -> None:
    for name, large, small_ones in [
        ("jcl/in1k-r50", 6, 0),
        ("jcl/in1k-r50-code", 5, 0),
        ("multi_key/in100-r18", 6, 0),
        ("moco/in1k-r50-v2+", 2, 0),
        ("co2/in1k-r50-v2", 2, 0),
        ("lorac/in1k-r50", 3, 5),
        ("moco_m/in1k-r50", 3, 5),
        ("lorac/in100-r18-views8", 8, 0),
        ("simaffinity/in1k-r50-plain", 2, 0),
        ("simtrace/in1k-r50-tricks", 2, 6),
        ("looc/in100-r50-color-rotation-texture", 5, 0),
        ("loocpp/in100-r50-color-rotation", 4, 0),
        ("mocopp/in100-r50-color-rotation-texture", 2, 0),
        ("supervised/in1k-r50", 1, 0),
        ("swav/in1k-r50", 2, 6),
        ("swav/in1k-r50-2x224", 2, 0),
        ("swav/in1k-r50-2x224-6x96", 2, 6),
        ("swav/in1k-r50-3x224-5x96", 3, 5),
        ("swav/in100-r18", 3, 5),
        ("dino/in1k-r50", 2, 6),
        ("dino/in100-r50", 2, 0),
        ("instdisc/in1k-r50", 1, 0),
        ("simclr/in1k-r50", 2, 0),
        ("byol/in1k-r50", 2, 0),
        ("simsiam/in1k-r50", 2, 0),
        ("barlow_twins/in1k-r50", 2, 0),
        ("vicreg/in1k-r50", 2, 0),
        ("wmse/in1k-r50", 4, 0),
        ("zero_cl/in1k-r50", 2, 0),
    ]:
        with subtests.test(name=name, large=large, small_ones=small_ones):
            views = built(RECIPES[name]).views
            assert [view.small for view in views] == [False] * large + [True] * small_ones


def built(recipe: Recipe[Any]) -> Any:
    """The method without memory for its weights; on a network of one layer where any will do."""
    with torch.device("meta"):
        backbone: nn.Module = nn.Linear(8, 8)
        feature_dim = 8
        if exported_arch(recipe) != recipe.arch:
            backbone, feature_dim = build_resnet("resnet18", recipe.stem)
        module, _ = METHODS[recipe.method]
        return module(backbone, feature_dim, recipe.config)


def test_every_recipe_fits_its_method() -> None:
    for name, recipe in RECIPES.items():
        _, config = METHODS[recipe.method]
        assert type(recipe.config) is type(config())
        assert name.split("/")[0] == recipe.method
        numbers = vars(recipe.config)
        assert recipe.batch_size % numbers.get("bn_splits", 1) == 0
        # whole batches, as MoCo has it: all keys of a step leave together
        assert numbers.get("queue_size", recipe.batch_size) % recipe.batch_size == 0


def test_no_recipe_hides_another_of_its_name() -> None:
    modules = [module for module in vars(recipes).values() if isinstance(module, ModuleType)]
    names = list(chain.from_iterable(getattr(module, "RECIPES", ()) for module in modules))
    assert len(names) == len(set(names)) == len(RECIPES)


def test_the_list_tells_paper_row_data_epochs_batch_and_rate(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--list"]) == 0
    header, *lines = (re.split(r"  +", line) for line in capsys.readouterr().out.splitlines())
    assert header == ["recipe", "data", "epochs", "batch", "rate", "from", "stands for"]
    told = {line[0]: line[1:] for line in lines}
    assert all(len(told[name]) == 6 for name in PUBLISHED)
    assert told["lorac/in100-r18-gaussian"][:4] == ["ImageNet-100 train", "100", "128", "2"]
    assert told["lorac/in100-r18-gaussian"][5] == "lorac/table5: Gauss."


@pytest.mark.parametrize("size", ["cifar10", "cifar10-cpu", "smoke"])
def test_every_method_has_a_small_recipe(size: str) -> None:
    assert {f"{method}/{size}" for method in METHODS} <= RECIPES.keys()
