"""Declared recipes are compared, marked, and stored in the records."""

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.results.published import published_recipes
from tests.synthetic_records import page, put, record
from transfer.cells.cell import Cell
from transfer.cells.declaration import (
    PUBLISHED_RECIPES,
    settle_declaration,
    with_declared_recipe,
)
from transfer.cells.execution import evaluate
from transfer.cells.request import Settings
from transfer.encoders.encoder import Encoder
from transfer.record import RECORDS, read_record

RECIPE = "moco/in1k-r50-v1"


@pytest.fixture
def backbone(small_backbone: Encoder) -> Encoder:
    return replace(small_backbone, made_by={})


def test_a_later_declaration_is_added_to_finished_records(
    backbone: Encoder, settings: Settings
) -> None:
    cell = Cell.with_backbone(task="cifar10_knn", backbone=backbone, seed=0, settings=settings)
    previous = evaluate(cell)
    declared = with_declared_recipe(backbone, RECIPE)
    assert evaluate(replace(cell.with_request(seed=1), backbone=declared)).declared == RECIPE
    second = replace(declared, sha256="0" * 64, declared="moco/in1k-r50-v2")
    for requested in (declared, second):
        settle_declaration(cell.records, requested, is_explicit=True)
    assert read_record(cell.path) == replace(previous, declared=RECIPE)


def test_declarable_recipes_are_those_of_published_numbers() -> None:
    listed = PUBLISHED_RECIPES.read_text().split()
    assert listed == sorted(published_recipes()), f"correct {PUBLISHED_RECIPES}"


def test_an_unknown_declaration_leaves_earlier_ones(backbone: Encoder, settings: Settings) -> None:
    cell = Cell.with_backbone(task="cifar10_knn", backbone=backbone, seed=0, settings=settings)
    evaluate(replace(cell, backbone=with_declared_recipe(backbone, RECIPE)))
    with pytest.raises(ValueError, match="this recipe has no published number; nearest are"):
        with_declared_recipe(backbone, "nosuch/recipe")
    assert read_record(cell.path).declared == RECIPE


def test_declared_recipe_and_records_agree(backbone: Encoder, tmp_path: Path) -> None:
    second = "moco/in1k-r50-v2"
    cases: tuple[tuple[tuple[str, ...], str, bool, str, str], ...] = (
        (
            (RECIPE,),
            second,
            True,
            second,
            f"--trained-with {RECIPE} is replaced by {second} in 1 records",
        ),
        ((RECIPE, RECIPE), "", True, "", f"--trained-with {RECIPE} is removed in 2 records"),
        ((second, RECIPE), "", False, RECIPE, f"declared as {RECIPE} by an earlier run"),
        (("",), "", True, "", ""),
        (("",), "", False, "", ""),
    )
    for number, (stored, now, inputs, expected, fact) in enumerate(cases):
        records = tmp_path / str(number) / RECORDS
        named = {"backbone": backbone.name, "sha256": backbone.sha256}
        for day, message in enumerate(stored, 1):
            changes = {"finished": f"2026-01-0{day}T00:00:00Z", "content": {"declared": message}}
            record(records, 1.0, task=str(day), **named, **changes)
        files = sorted((records / backbone.name).glob("*.json"))
        shutil.copy(files[0], files[0].with_name(f"{files[0].stem} (1).json"))  # does not count
        record(records, 1.0, backbone="foreign", sha256="0" * 64, content={"declared": second})
        requested = replace(backbone, declared=now)
        settled, line = settle_declaration(records, requested, is_explicit=inputs)
        assert settled.declared == read_record(files[-1]).declared == expected
        assert fact in line
        assert bool(line) == bool(fact)
        if inputs:
            assert {read_record(file).declared for file in files} == {expected}
            assert settle_declaration(records, requested, is_explicit=True)[1] == ""


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
    assert text.count("†: the file does not record its training") == 1
    assert "†:" in page(tmp_path, "overview.md")
