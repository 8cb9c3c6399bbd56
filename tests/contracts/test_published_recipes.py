"""What the tables know of recipes is what pre-training says of them.

    python -m tests.contracts.test_published_recipes

writes the file anew after a change of recipes.
"""

from typing import Any

import pytest
import yaml

from benchmarks.published import Table, published
from benchmarks.recipes import FILE, listed_recipes, recipe_of
from pretrain.recipes import RECIPES, Recipe

HEADER = (
    "# The recipes of `python -m pretrain --list` that stand for a published table.\n"
    "# Written by python -m tests.contracts.test_published_recipes.\n"
)
TABLES = [table for paper in published() for table in paper.tables]


def exported_arch(recipe: Recipe[Any]) -> str:
    """Of the backbone file."""
    match recipe.method:
        case "loocpp":
            return f"{recipe.arch}-heads{1 + len(recipe.config.designated)}"
        case "mocopp":
            return f"{recipe.arch}-heads{recipe.config.num_heads}"
    return recipe.arch


def expected() -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "method": recipe.method,
            "arch": exported_arch(recipe),
            "epochs": recipe.epochs,
            "batch_size": recipe.batch_size,
            "table_row": recipe.table_row,
        }
        for name, recipe in RECIPES.items()
        if "/table" in recipe.table_row
    ]


def test_the_file_repeats_the_recipes() -> None:
    assert [vars(recipe) for recipe in listed_recipes()] == expected()


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.id)
def test_every_row_of_a_method_that_we_have_names_its_recipe(table: Table) -> None:
    methods = {recipe.method for recipe in RECIPES.values()}
    for row in table.rows:
        name = recipe_of(table, row)
        assert bool(name) == (row.method in methods), row.label
        if name:
            recipe = RECIPES[name]
            assert recipe.method == row.method
            assert row.pretrain.batch_size in (None, recipe.batch_size)


@pytest.mark.parametrize(
    ("table_id", "row", "name"),
    [
        ("looc/table1", 2, "moco/in100-r50-rotation"),
        ("looc/table1", 3, "moco/in100-r50-rotation-shared"),
        ("looc/table5", 2, "loocpp/in100-r50-color-rotation-texture"),
        ("uniclr/table1", 0, "simwhitening/in1k-r50-plain"),
        ("uniclr/table3", 6, "simaffinity/cifar10"),
        ("lorac/table5", 1, "lorac/in100-r18-gaussian"),
        ("co2/table3", 9, "co2/in1k-r50-v2"),
    ],
)
def test_rows_name_the_recipe_that_a_reader_would_choose(
    table_id: str, row: int, name: str
) -> None:
    (table,) = (table for table in TABLES if table.id == table_id)
    assert recipe_of(table, table.rows[row]) == name


if __name__ == "__main__":
    body = "".join(
        "- " + yaml.safe_dump(entry, default_flow_style=True, sort_keys=False, width=1000)
        for entry in expected()
    )
    FILE.write_text(HEADER + body, encoding="utf-8")
