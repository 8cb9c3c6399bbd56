"""Every recipe that a published row names is compared with exactly that row."""

import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from benchmarks.pages.against import compared_numbers
from benchmarks.pages.published import AVERAGE, Column, Row, Table, papers, transfer_tasks
from benchmarks.pages.records import read_results
from pretrain.recipes import RECIPES
from pretrain.run import flatten
from tests.synthetic_records import page, record

DATA = {"ImageNet-1k": "in1k", "ImageNet-100": "in100", "CIFAR-10": "cifar10"}
DATA |= {"CIFAR-100": "cifar100"}
ROWS = [
    pytest.param(table, row, id=f"{table.id}-{number}-{row.recipe}")
    for paper in papers()
    for table in paper.tables
    for number, row in enumerate(table.rows)
    if row.recipe
]


def made_by(recipe_name: str) -> dict[str, Any]:
    """The origin that pre-training writes into the backbone file of a recipe."""
    recipe = RECIPES[recipe_name]
    return {
        "method": recipe.method,
        "recipe": recipe_name,
        "table_row": recipe.table_row,
        "settings": flatten(asdict(recipe)),
        "epochs": float(recipe.epochs),
        "data": DATA[re.split(r"[ ,]", recipe.images)[0]],
    }


def arch(recipe_name: str) -> str:
    recipe = RECIPES[recipe_name]
    match recipe.method:
        case "loocpp":
            return f"{recipe.arch}-heads{1 + len(recipe.config.designated)}"
        case "mocopp":
            return f"{recipe.arch}-heads{recipe.config.num_heads}"
    return recipe.arch


def put_records(folder: Path, row: Row, column: Column, protocol: str, **backbone: Any) -> None:
    task = row.task or column.task
    tasks = transfer_tasks() if task == AVERAGE else (task,)
    for name in tasks:
        metric = "" if task == AVERAGE else column.metric
        record(folder, 50.0, task=name, protocol=f"{protocol}/1", metric=metric, **backbone)


@pytest.mark.parametrize(("table", "row"), ROWS)
def test_a_recipe_is_compared_with_the_row_that_names_it(
    tmp_path: Path, table: Table, row: Row
) -> None:
    origin = made_by(row.recipe) | ({"heads": list(row.heads)} if row.heads else {})
    network = row.pretrain.arch if row.heads else arch(row.recipe)
    for number, column in enumerate(table.columns):
        if row.values[column.key] is None:
            continue
        protocol = row.protocol_of(column)
        results = tmp_path / str(number)  # a record holds one metric here
        put_records(results, row, column, protocol or column.protocol, arch=network, made_by=origin)
        pairs = [
            p for p in compared_numbers(table, read_results(results).done)[0] if p.column is column
        ]
        assert [pair.row for pair in pairs] == [row]
        assert [pair.judged for pair in pairs] == [bool(protocol)]


def test_two_runs_of_the_same_row_differ_in_crops(tmp_path: Path) -> None:
    swav = made_by("swav/in1k-r50-3x224-5x96")
    record(tmp_path, 72.0, task="in1k_linear", protocol="lorac-2021/1", made_by=swav)
    text = page(tmp_path, "lorac_table1.md").split("## Against the paper")[1]
    assert re.search(r"→ mine \| SwAV +\| Top-1 +\| 72.00 \| +72.3 \| +-0.30 \| +pass", text)


def test_crops_decide_for_a_recipe_of_another_name(tmp_path: Path) -> None:
    swav = made_by("swav/in1k-r50-3x224-5x96") | {"recipe": "swav/mine-in1k", "table_row": ""}
    record(tmp_path, 72.0, task="in1k_linear", protocol="lorac-2021/1", made_by=swav)
    text = page(tmp_path, "lorac_table1.md").split("## Against the paper")[1]
    assert re.search(r"→ mine \| SwAV +\| Top-1 +\| 72.00 \| +72.3 ", text)


def test_a_tie_names_the_rows(tmp_path: Path) -> None:
    swav = {"method": "swav", "recipe": "swav/mine-in1k", "epochs": 200.0, "data": "in1k"}
    record(tmp_path, 72.0, task="in1k_linear", protocol="lorac-2021/1", made_by=swav)
    assert "several published rows fit (SwAV, SwAV)" in page(tmp_path, "lorac_table1.md")


def test_a_number_from_elsewhere_is_shown_and_not_judged(tmp_path: Path) -> None:
    simclr = made_by("simclr/in1k-r50")
    record(tmp_path, 66.0, task="in1k_linear", protocol="co2-2021/1", made_by=simclr)
    text = page(tmp_path, "co2_table1.md").split("## Against the paper")[1]
    assert re.search(r"\| 66.00 \| +69.3 \| +-3.30 \| not judged", text)
    assert "- not judged: the paper cites the number from elsewhere" in text


def test_a_cited_number_is_judged_under_the_protocol_of_its_source(tmp_path: Path) -> None:
    moco = made_by("moco/in1k-r50-v1")
    seg = {"task": "voc12_seg_fcn", "metric": "mIoU", "made_by": moco}
    record(tmp_path, 72.4, protocol="moco-2020/1", **seg)
    record(tmp_path, 72.7, protocol="co2-2021/1", **seg)
    text = page(tmp_path).split("## Against the paper")[1]
    assert re.search(
        r"MoCo \(He et al., 2020\) +\| mIoU +\| 72.40 \| +72.5 \| +-0.10 \| +pass", text
    )
    assert re.search(r"\(our impl.\) +\| mIoU +\| 72.70 \| +72.6 \| +\+0.10 \| +pass", text)
    assert not re.search(r"72.40 \| +72.6|72.70 \| +72.5", text)


@pytest.mark.parametrize(
    ("recipe", "table", "task", "protocol", "remark"),
    [
        ("jcl/in1k-r50-code", "jcl_table1", "in1k_linear", "jcl-2020", "released script"),
        ("lorac/in1k-r50-code", "lorac_table1", "in1k_linear", "lorac-2021", "released script"),
        ("vicreg/in1k-r50-code", "uniclr_table2", "in1k_linear", "uniclr-2022", "released code"),
        (
            "simtrace/in1k-r50-multicrop",
            "uniclr_table2",
            "in1k_linear",
            "uniclr-2022",
            "multi-crop",
        ),
    ],
)
def test_another_reading_of_a_row_is_compared_with_a_remark(
    tmp_path: Path, recipe: str, table: str, task: str, protocol: str, remark: str
) -> None:
    record(tmp_path, 68.0, task=task, protocol=f"{protocol}/1", made_by=made_by(recipe))
    text = page(tmp_path, f"{table}.md")
    compared, missing = text.split("## Against the paper")[1].split("## Missing rows")
    (line,) = re.findall(r"^- → mine is no run of the printed row .*$", compared, re.MULTILINE)
    assert recipe in line
    assert remark in line
    assert re.search(r"→ mine \| .* \| 68.00 \|", compared)
    row_recipe = next(
        row.recipe
        for paper in papers()
        for t in paper.tables
        for row in t.rows
        if t.file_name == f"{table}.md" and recipe in row.beside
    )
    assert f"needs pre-training `{row_recipe}`" in missing


def test_other_readings_of_rows_are_recipes() -> None:
    beside = {r for p in papers() for t in p.tables for row in t.rows for r in row.beside}
    assert beside <= set(RECIPES)
    assert {name for name in RECIPES if name.endswith("-code")} <= beside
