"""The reference lists everything that a user can type or see."""

import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, get_args

import pytest

from benchmarks.planning.options import RunAll
from benchmarks.planning.plan import State
from benchmarks.results.differences import Word
from benchmarks.results.published import all_tables
from docs.generate import PAGES
from pretrain.methods import METHODS
from pretrain.recipes import RECIPES
from pretrain.running.command_line import option_of
from transfer.cells.command import Evaluate
from transfer.cells.request import NO_OPTIONS, Request
from transfer.cells.state import StateName
from transfer.datasets.catalog import DATASETS
from transfer.encoders.options import Checkpoint
from transfer.tasks import TASKS

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"


def option_names(settings: Any) -> Iterator[str]:
    for spec in fields(settings):
        if spec.name in NO_OPTIONS:
            continue
        value = getattr(settings, spec.name)
        if is_dataclass(value):
            yield from option_names(value)
        else:
            yield option_of(spec.name).removeprefix("--")


@pytest.mark.parametrize(
    ("page", "names"),
    [
        ("tasks", TASKS),
        ("recipes", RECIPES),
        ("methods", METHODS),
        ("datasets", DATASETS),
    ],
)
def test_page_has_every_name(page: str, names: Any) -> None:
    text = PAGES[page]()
    assert [name for name in names if f"`{name}`" not in text] == []


@pytest.mark.parametrize(
    ("page", "request_"),
    [
        ("run_all", RunAll()),
        ("transfer", Evaluate(request=Request(task="", checkpoint=Checkpoint(ckpt=Path())))),
        ("pretrain", next(iter(RECIPES.values()))),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_page_has_every_option(page: str, request_: Any) -> None:
    output = set(re.findall(r"option\} (?:--)?([a-z][\w-]*)", PAGES[page]()))
    hidden = {*NO_OPTIONS, "task", "method", "images", "paper", "table-row", "norm-groups"}
    assert set(option_names(request_)) - hidden <= output


def test_page_has_options_of_every_method() -> None:
    text = PAGES["pretrain"]()
    names = {name for recipe in RECIPES.values() for name in option_names(recipe.config)}
    assert [name for name in sorted(names) if f"option}} --{name}" not in text] == []


def test_glossary_has_every_verdict_and_state() -> None:
    text = (REFERENCE / "glossary.md").read_text()
    terms = {arg for line in re.findall(r"(.+)\n: ", text) for arg in line.split(", ")}
    assert {*get_args(Word), *get_args(State), *get_args(StateName), "no verdict"} <= terms


def test_published_page_has_every_table() -> None:
    numbers = {
        f"\n### {paper.name}, {table.number}\n" for paper, table in all_tables() if table.rows
    }
    text = PAGES["published"]()
    assert [heading for heading in numbers if heading not in text] == []
