"""Published numbers agree with spot checks and identities."""

import re
from pathlib import Path
from statistics import fmean

import pytest

from benchmarks.results.published import (
    Measurement,
    Paper,
    papers,
    published_table,
    transfer_tasks,
)
from benchmarks.results.verdicts import missing_row_lines
from pretrain.recipes import RECIPES
from tests.benchmarks.drawing.figure_records import settings_of
from tests.pretrain.recipe_facts import exported_arch, tables_of
from tests.synthetic_records import page
from transfer.encoders.public_files import PUBLIC_FILES

ROOMS = ("benchmarks", "pretrain", "transfer", "slurm", "results/reference")
TABLES = [table for paper in papers() for table in paper.tables]


def test_lorac_averages_are_means_of_twelve_datasets() -> None:
    jcl, lorac = published_table("jcl/table2"), published_table("lorac/table4")
    assert [row.values for row in jcl.rows[:4]] == [row.values for row in lorac.rows[:4]]
    for row in published_table("lorac/table2").rows:
        members = [
            row.values[key.removeprefix("transfer_linear/")] or 0.0 for key in transfer_tasks()
        ]
        assert row.values["average"] == pytest.approx(fmean(members), abs=0.0501)


def printed(paper: Paper, recipe: str, item: Measurement) -> list[float]:
    """Return what a paper's tables print for a recipe and a number."""
    return [
        value
        for table in paper.tables
        for row in table.rows
        for column in table.columns
        if (row.recipe, row.task or column.task, column.metric) == (recipe, item.task, item.metric)
        if (value := row.values[column.key]) is not None
    ]


def test_documents_state_the_count_of_published_numbers_that_the_overview_prints(
    tmp_path: Path,
) -> None:
    total = sum(
        row.number(column) is not None
        for table in TABLES
        if table.kind != "settings"
        for row in table.rows
        for column in table.columns
    )
    assert f"\n{total} published numbers in the tables of 9 papers: " in page(
        tmp_path, "overview.md"
    )
    root = Path(__file__).parents[3]
    documents = [root / "README.md"]
    documents += [path for room in (*ROOMS, "docs") for path in (root / room).rglob("*.md")]
    stated = {
        (path.name, int(count.replace(",", "")))
        for path in documents
        for count in re.findall(r"([\d,]+) published numbers", path.read_text())
    }
    assert {count for _, count in stated} == {total}


def test_gains_of_the_text_are_differences_of_the_tables_but_for_three() -> None:
    remaining = {}
    for paper in papers():
        for statement in paper.stated:
            for item in (item for item in statement.measured if item.minus):
                ours, theirs = printed(paper, item.recipe, item), printed(paper, item.minus, item)
                gains = sorted({round(a - b, 2) for a in ours for b in theirs})
                if ours and statement.values[item.value] not in gains:
                    remaining[statement.what.partition(",")[0], statement.values[item.value]] = (
                        gains
                    )
    assert remaining == {
        ("gain of CO2", 1.2): [1.1],
        ("gain of CO2", 0.9): [0.7, 0.8],
        ("approximate gain over MoCo on iNaturalist", 10): [9.9],
    }


def test_settings_of_jcls_sweeps_are_those_of_table_3(tmp_path: Path) -> None:
    base = settings_of("jcl/in100-r18")
    for row, varied in zip(
        published_table("jcl/table3").rows, ("m_prime", "lambda", "tau"), strict=True
    ):
        names = ("num_keys", "covariance_weight", "temperature")
        ours = dict(zip(row.values, (base[f"config.{name}"] for name in names), strict=True))
        assert row.values == ours | {varied: None}
    assert "| Fig.(M.2(b)) |   5 |      – | 0.2 |" in page(tmp_path, "jcl_table3.md")


def test_every_cell_belongs_to_a_column(
    subtests: pytest.Subtests,
) -> None:
    for table in TABLES:
        with subtests.test(table=table):
            keys = {column.key for column in table.columns}
            for row in table.rows:
                assert set(row.values) == keys
                assert set(row.ci) | set(row.bracketed) <= keys
                assert set(row.markers) <= {*keys, "bracketed"}
                assert set(row.attrs) | set(row.marks) <= set(table.attributes)
                if row.recipe and row.recipe not in RECIPES:  # published weights
                    assert row.recipe in {public.recipe for public in PUBLIC_FILES}
                    assert not row.method
                    continue
                assert bool(row.recipe) == bool(row.method)
                if row.recipe:
                    recipe = RECIPES[row.recipe]
                    assert recipe.method == row.method
                    assert table.id in tables_of(recipe)
                    assert row.heads or row.pretrain.arch in (None, exported_arch(recipe))
                    assert row.pretrain.epochs in (None, recipe.epochs)
                    assert row.pretrain.batch_size in (None, recipe.batch_size)


def test_heads_of_looc_table_5_are_numbered_as_the_recipe_orders_them() -> None:
    recipe = RECIPES["loocpp/in100-r50-color-rotation-texture"]
    lines = missing_row_lines(published_table("looc/table5"), [])
    for number, name in enumerate(recipe.config.designated, 1):
        (line,) = (line for line in lines if line.endswith(f"(invariant and {name})"))
        assert f"`--heads 0,{number}`" in line
    assert len(lines) == 5  # the invariant head alone, and all heads
