"""Which pre-training recipe makes which published row: published/recipes.yaml.

That file repeats what the pre-training room says of its recipes, which this room may not import; a
contract test holds the two together and writes the file anew.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Any

import yaml

from benchmarks.against import counterparts, stands_for
from benchmarks.published import FOLDER, Row, Table
from benchmarks.records import Model

FILE = FOLDER / "recipes.yaml"


@dataclass(frozen=True, kw_only=True)
class Listed:
    """A recipe, as far as tables need to know it."""

    name: str
    method: str
    arch: str
    """Of the exported file, such as resnet50-heads4."""
    epochs: float
    batch_size: int
    table_row: str
    """Results of the papers that it stands for."""


@cache
def listed_recipes() -> tuple[Listed, ...]:
    """All that stand for a published table."""
    content: list[dict[str, Any]] = yaml.safe_load(FILE.read_text(encoding="utf-8"))
    return tuple(Listed(**entry) for entry in content)


def recipe_of(published: Table, row: Row) -> str:
    """Name of the recipe that pre-trains a row; empty where there is none.

    Of several that fit, the one whose name has no words beyond the row's.
    """
    # rows of "heads" are probes on some heads of one network
    probes = "heads" in row.variant.split()
    words = set(row.variant.split()) - {"heads"}
    paper = row.pretrain
    fitting = [
        recipe
        for recipe in listed_recipes()
        if recipe.method == row.method
        and words <= _words(recipe.name)
        and stands_for(recipe.table_row, published.id)
        and (probes or paper.arch in (None, recipe.arch))
        and paper.data in {None, *_words(recipe.name)}
        # supervised networks are torchvision's, whatever the length of the table's other runs
        and (row.method == "supervised" or paper.epochs in (None, recipe.epochs))
    ]
    same_batch = [recipe for recipe in fitting if recipe.batch_size == paper.batch_size]
    names = [recipe.name for recipe in same_batch or fitting]
    return min(names, key=lambda name: (len(name), name), default="")


def missing_lines(published: Table, models: Iterable[Model]) -> list[str]:
    """What would measure the rows that no comparable backbone stands for."""
    measured = {id(row) for model in models for row in counterparts(published, model)[0]}
    lines: dict[str, list[str]] = {}
    for row in published.rows:
        if id(row) not in measured:
            lines.setdefault(_needs(published, row), []).append(_label(published, row))
    return [f"- {', '.join(dict.fromkeys(labels))}: {needs}" for needs, labels in lines.items()]


def _needs(published: Table, row: Row) -> str:
    if row.role == "random":
        return "needs no pre-training: `run_all.py --random`."
    recipe = recipe_of(published, row)
    if recipe:
        then = ", then `run_all.py --heads`" if "heads" in row.variant.split() else ""
        return f"needs pre-training `{recipe}`{then}."
    return "of other work, without a recipe here."


def _label(published: Table, row: Row) -> str:
    labels = {attribute.key: attribute.label for attribute in published.attributes}
    ticked = [labels[name] for name, mark in row.marks.items() if mark is True]
    told = f" ({', '.join(ticked)})" if ticked else ""
    task = f"{row.group}: " if row.task and row.group else ""
    return f"{task}{row.label}{told}"


def _words(name: str) -> set[str]:
    return set(re.findall(r"[a-z0-9+]+", name))
