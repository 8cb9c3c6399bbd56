"""Recipes against the papers' settings, and published tables against the recipes."""

import re
from itertools import chain
from types import ModuleType
from typing import Any

import pytest

from benchmarks.results.published import papers
from pretrain import recipes
from pretrain.recipes import RECIPES, Recipe
from tests.pretrain.recipe_facts import tables_of

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
    recipes = []
    for row in rows:
        config = RECIPES[row.recipe].config
        recipes.append(row.recipe)
        assert dict(row.marks) == {
            "temperature": config.tau != 1,
            "symmetric_loss": config.gamma != 0,
            "whitening": config.variant == "whitening",
            "momentum": config.momentum_encoder,
            "multicrop": config.num_small_views > 0,
            "predictor": config.predictor,
        }
    assert len(set(recipes)) == len(rows) == 14


@pytest.mark.parametrize("table_id", ["looc/table2", "looc/table3"])
def test_designated_augmentations_are_the_ticked_ones(table_id: str) -> None:
    for row in TABLES[table_id].rows:
        if row.method in ("looc", "loocpp"):
            ticked = [name for name, mark in row.marks.items() if mark]
            recipe = RECIPES[f"{row.method}/in100-r50-{'-'.join(ticked)}"]
            assert list(recipe.config.designated) == ticked
            assert recipe.views.rotation_probability == 0.5 * ("rotation" in ticked)
            assert recipe.views.texture_probability == 0.5 * ("texture" in ticked)


def test_every_recipe_fits_its_method() -> None:
    for name, recipe in RECIPES.items():
        # at the small scale a method is built with its config by every other test
        assert type(recipe.config) is type(RECIPES[f"{recipe.method}/smoke"].config)
        assert name.split("/")[0] == recipe.method
        numbers = vars(recipe.config)
        assert recipe.batch_size % numbers.get("bn_splits", 1) == 0
        # whole batches, as MoCo has it: all keys of a step leave together
        assert numbers.get("queue_size", recipe.batch_size) % recipe.batch_size == 0


def test_no_recipe_hides_another_of_its_name() -> None:
    modules = [module for module in vars(recipes).values() if isinstance(module, ModuleType)]
    names = list(chain.from_iterable(getattr(module, "RECIPES", ()) for module in modules))
    assert len(names) == len(set(names)) == len(RECIPES)


@pytest.mark.parametrize(
    ("name", "table_id", "text"),
    [
        ("simaffinity/in1k-r50-plain", "uniclr/table1", "last norm"),
        ("simaffinity/in1k-r50-plain", "uniclr/table1", "biases and norms"),
        ("simaffinity/in100-r50", "uniclr/table3", "biases and norms"),
        ("simaffinity/cifar10", "uniclr/table3", "stem"),
        ("simaffinity/cifar10", "uniclr/table3", "last norm"),
        ("lorac/in100-r18", "lorac/table5", "512"),
    ],
)
def test_recipes_and_tables_name_readings_that_are_ours(
    name: str, table_id: str, text: str
) -> None:
    assert text in RECIPES[name].paper
    assert any(text in fact for fact in TABLES[table_id].facts)


def test_loracs_table_names_the_batch_that_it_prints_for_jcl() -> None:
    (row,) = (row for row in TABLES["lorac/table1"].rows if row.label == "JCL")
    printed, ours = row.attrs["batch"], RECIPES[row.recipe].batch_size
    assert (printed, ours) == (256, 512)
    assert any("batch of 256 for JCL" in fact for fact in TABLES["lorac/table1"].facts)


def test_lorac_is_not_judged_by_a_probe_that_the_paper_does_not_state() -> None:
    lorac = next(paper for paper in papers() if paper.id == "lorac")
    (gain,) = (
        item for message in lorac.stated for item in message.measured if "swav" in item.minus
    )
    rows = [row for row in TABLES["lorac/table1"].rows if row.method == "swav"]
    assert [row.unstated for row in rows] == [gain.no_verdict] * 2
    assert "states no probe for SwAV" in gain.no_verdict
