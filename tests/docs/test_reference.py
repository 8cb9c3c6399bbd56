"""The reference lists everything that a user can type or see."""

import re
from collections.abc import Iterator
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import pytest

from benchmarks.planning.plan import State
from benchmarks.results.differences import Word
from benchmarks.results.published import all_tables
from benchmarks.scripts import SUBCOMMANDS
from docs.generate import PAGES
from pretrain.methods import METHODS
from pretrain.recipes import RECIPES
from pretrain.running import command_line
from pretrain.running.command_line import option_of
from transfer.__main__ import COMMANDS as DATA_COMMANDS
from transfer.cells.request import NO_OPTIONS
from transfer.cells.state import StateName
from transfer.datasets.catalog import DATASETS
from transfer.tasks import TASKS

REFERENCE = Path(__file__).parents[2] / "docs" / "reference"


@cache
def text_of(page: str) -> str:
    return PAGES[page]()


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
    text = text_of(page)
    assert [name for name in names if f"`{name}`" not in text] == []


COMMANDS: list[tuple[str, str, str, list[str]]] = [
    ("python benchmarks/run_all.py", "run_all", "benchmarks.run_all", []),
    *((f"python -m {module}", "results", module, []) for module in SUBCOMMANDS.values()),
    *(
        (f"python -m transfer {name}", "transfer", "transfer.__main__", [name])
        for name in ("TASK", *DATA_COMMANDS)
    ),
    ("python -m slurm", "slurm", "slurm.__main__", []),
]


@pytest.mark.parametrize(("command", "page", "module", "args"), COMMANDS)
def test_section_has_every_option_of_the_help(
    command: str,
    page: str,
    module: str,
    args: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # it would change how this process handles SIGPIPE
    monkeypatch.setattr(command_line, "end_with_the_pipe", lambda: None)
    with pytest.raises(SystemExit):
        import_module(module).main([*args, "--help"])
    listed = set(re.findall(r"^[│ ]*(--[a-z][\w-]*)", capsys.readouterr().out, re.M))
    section = text_of(page).partition(f"## `{command}`\n")[2].partition("\n## `")[0]
    documented = set(re.findall(r"--[a-z][\w-]*", " ".join(re.findall(r"option\} (.*)", section))))
    assert listed
    assert listed - documented == set()


def test_page_has_every_option_of_pretraining() -> None:
    output = set(re.findall(r"option\} (?:--)?([a-z][\w-]*)", text_of("pretrain")))
    hidden = {"method", "images", "paper", "table-row", "norm-groups"}
    assert set(option_names(next(iter(RECIPES.values())))) - hidden <= output


def test_page_has_options_of_every_method() -> None:
    text = text_of("pretrain")
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
    text = text_of("published")
    assert [heading for heading in numbers if heading not in text] == []
