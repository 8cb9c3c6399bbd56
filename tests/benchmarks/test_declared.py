"""A recipe that the user declares for a foreign file: compared, marked, and kept in the records."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.execution.jobs import arguments_of
from benchmarks.execution.one_cell import cell_from_arguments
from benchmarks.pages.published import papers, published_recipes
from benchmarks.planning.checkpoints import (
    origins,
)
from benchmarks.planning.options import RunAll
from benchmarks.run_all import main
from pretrain.recipes import RECIPES
from tests.synthetic_records import page, put, record
from transfer.backbone import Backbone, random_backbone
from transfer.cells.declaration import settle_declaration, with_declared_recipe
from transfer.cells.execution import evaluate
from transfer.cells.request import Cell, CellSettings
from transfer.record import Record, read_record, record_path, store_record

RECIPE = "moco/in1k-r50-v1"


@pytest.fixture
def foreign(tmp_path: Path) -> Path:
    """A ResNet-18 without a word on how it was made."""
    backbone = random_backbone(arch="resnet18", stem="imagenet", seed=0)
    torch.save(backbone.state_dict, tmp_path / "foreign.pth")
    return tmp_path / "foreign.pth"


@pytest.fixture
def backbone(small_backbone: Backbone) -> Backbone:
    return replace(small_backbone, made_by={})


def test_a_declared_recipe_reaches_the_backbone_and_its_process(
    foreign: Path, settings: CellSettings
) -> None:
    (origin,) = origins(RunAll(ckpt=(foreign,), declared=(RECIPE,)))
    loaded = origin.load()
    cell = Cell(key="cifar10_knn", backbone=loaded, seed=0, settings=settings)
    words = arguments_of(cell, {loaded.name: origin})
    assert cell_from_arguments([*words, "--trust-topology"]).backbone.declared == RECIPE


def test_a_wrong_declaration_is_refused(foreign: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, fact in (
        (["moco/in1k-r50-v3"], "close are moco/in1k-r50-v"),
        ([RECIPE, RECIPE], "2 given for 1"),
    ):
        assert main(["--ckpt", str(foreign), "--as", *words, "--plan"]) == 2
        assert fact in capsys.readouterr().err


def test_a_record_keeps_the_declaration(backbone: Backbone, settings: CellSettings) -> None:
    declared = with_declared_recipe(backbone, RECIPE)
    cell = Cell(key="cifar10_knn", backbone=declared, seed=0, settings=settings)
    assert evaluate(cell).declared == RECIPE
    undeclared = replace(cell, backbone=backbone)
    assert evaluate(undeclared).declared == RECIPE  # the finished record stays


def test_a_later_declaration_is_added_to_finished_records(
    backbone: Backbone, settings: CellSettings
) -> None:
    cell = Cell(key="cifar10_knn", backbone=backbone, seed=0, settings=settings)
    before = evaluate(cell)
    declared = with_declared_recipe(backbone, RECIPE)
    other = replace(declared, sha256="0" * 64, declared="moco/in1k-r50-v2")
    for asked in (declared, other):
        settle_declaration(settings.records, asked, given=True)
    assert read_record(cell.path) == replace(before, declared=RECIPE)


def store(records: Path, backbone: Backbone, task: str, declared: str, day: int) -> Path:
    """Write the record of a finished task of this backbone; return its file."""
    path = record_path(records, backbone.name, task, "x/1", "paper", 0)
    fields: dict[str, Any] = {
        "backbone": {n: getattr(backbone, n) for n in ("name", "arch", "stem", "sha256")},
        "task": task,
        "protocol": {"name": "x/1", "hash": "h", "paper_hash": "h", "fields": {}},
        "schedule": "paper",
        "seed": 0,
        "engine": "torch",
        "metrics": {"top1": 1.0},
        "details": {},
        "data": {},
        "departures": [],
        "wall_s": 1.0,
        "peak_memory_gb": 1.0,
        "request": {"options": {}, "input": {}},
        "primary_metric": "top1",
        "heading": "Others",
        "declared": declared,
        "finished": f"2026-01-0{day}T00:00:00Z",
    }
    return store_record(path, Record(**fields))


def test_what_is_declared_now_and_what_records_say_are_made_to_agree(
    backbone: Backbone, tmp_path: Path
) -> None:
    other = "moco/in1k-r50-v2"
    cases: tuple[tuple[tuple[str, ...], str, bool, str, str], ...] = (
        ((RECIPE,), other, True, other, f"--as {RECIPE} is replaced by {other} in 1 records"),
        ((RECIPE, RECIPE), "", True, "", f"--as {RECIPE} is withdrawn in 2 records"),
        ((other, RECIPE), "", False, RECIPE, f"declared as {RECIPE} by an earlier run"),
        (("",), "", True, "", ""),
        (("",), "", False, "", ""),
    )
    for number, (stored, now, given, expected, fact) in enumerate(cases):
        records = tmp_path / str(number)
        files = [store(records, backbone, str(n), said, n + 1) for n, said in enumerate(stored)]
        store(records, replace(backbone, sha256="0" * 64), "foreign", other, 9)
        asked = replace(backbone, declared=now)
        settled, line = settle_declaration(records, asked, given=given)
        assert settled.declared == read_record(files[-1]).declared == expected
        assert fact in line
        assert bool(line) == bool(fact)
        if given:
            assert {read_record(file).declared for file in files} == {expected}
            assert settle_declaration(records, asked, given=True)[1] == ""


def declare(results: Path, recipe: str) -> None:
    for path in results.rglob("*.json"):
        content = json.loads(path.read_text()) | {"declared": recipe}
        put(path.parent, path.name, content)


def test_a_declared_backbone_is_compared_and_marked(tmp_path: Path) -> None:
    record(tmp_path, 79.5, backbone="moco_v1_200ep")
    declare(tmp_path, RECIPE)
    text = page(tmp_path)
    assert re.search(r"^\| → moco_v1_200ep† ", text, re.MULTILINE)
    assert re.search(r"→ moco_v1_200ep† \| MoCo .*our impl.* 79.50 \| +79.7 \| +-0.20 ", text)
    assert "declared as moco/in1k-r50-v1" in text
    assert text.count("†: the file does not say how it was made") == 1
    assert "†:" in page(tmp_path, "overview.md")


def test_every_recipe_with_a_published_number_can_be_declared() -> None:
    known = published_recipes()
    assert set(known) <= set(RECIPES)
    for name, pretrain in known.items():
        recipe = RECIPES[name]
        assert recipe.method == name.partition("/")[0]
        assert pretrain.epochs in (None, recipe.epochs)
    rows = [row for paper in papers() for table in paper.tables for row in table.rows]
    assert {row.recipe for row in rows if row.recipe} <= set(known)
