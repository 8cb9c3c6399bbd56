"""Pre-training methods beside each other: backbones whose recipes, METHOD/SIZE, have one size."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from benchmarks.pages.blocks import Block, Column, sort_into_blocks
from benchmarks.pages.entries import table_entry
from benchmarks.pages.markdown import Notes
from benchmarks.pages.records import Model, Results
from benchmarks.pages.table_rows import (
    Heading,
    TableNotes,
    backbone_description,
    backbone_line,
    declaration_notes,
    grid,
    row_label,
)
from benchmarks.pages.verdict import noise_rule

DECIMALS = 1


def method_page(results: Results, command: str) -> str:
    """Return the page; empty if no two methods have a result on the same task."""
    blocks = sort_into_blocks(results.done, results.failed)
    models = {model for block in blocks for model in block.models if "/" in model.recipe}
    parts = []
    ordered = sorted(models, key=_sort_key)
    for size, group in groupby(ordered, key=lambda model: _sort_key(model)[0]):
        parts += _table(size, list(group), blocks)
    if not parts:
        return ""
    header = [
        "# Methods",
        "Percent; one row per method, all of one size of recipe. Only numbers of one column may be "
        f"compared. Made by `{command}`.",
    ]
    return "\n\n".join([*header, *parts]) + "\n"


def _sort_key(model: Model) -> tuple[str, bool, Model]:
    """Return the sort key of a backbone: recipe size, then random initializations first."""
    return model.recipe.partition("/")[2], model.method != "random", model


def _table(size: str, models: Sequence[Model], blocks: Sequence[Block]) -> list[str]:
    columns = [(block, column) for block in blocks for column in _shared_columns(block, models)]
    rows = [m for m in models if any((m, column) in block.done for block, column in columns)]
    if not columns:
        return []
    entries = {
        model: [
            table_entry(block, model, *column, block.metric_and_heading(column)[0])
            for block, column in columns
        ]
        for model in rows
    }
    notes = Notes()
    table_notes = TableNotes.of_entries((entry for row in entries.values() for entry in row), notes)
    decimals = [DECIMALS] * len(columns)
    lines = [
        backbone_line(row_label(model, rows), row, table_notes, decimals=decimals)
        for model, row in entries.items()
    ]
    headings = [
        Heading(f"{column[0]} {block.metric_and_heading(column)[0]}", column[0])
        for block, column in columns
    ]
    protocols = [
        f"- {task}: protocol {block.protocols([(task, protocol)])}; {block.heading.lower()}."
        for block, (task, protocol) in columns
    ]
    backbones = dict.fromkeys(replace(model, other_conditions="") for model in rows)
    return [
        f"## {size}",
        noise_rule(sorted({task for _, (task, _) in columns})),
        grid(["backbone"], headings, lines),
        "\n".join([*protocols, f"- All rows: {'; '.join(table_notes.everywhere)}."]),
        "\n".join(notes.lines()),
        "\n".join(map(backbone_description, backbones)),
        *declaration_notes(backbones),
    ]


def _shared_columns(block: Block, models: Sequence[Model]) -> list[Column]:
    """Return the columns in which two methods have a result, without random initializations."""
    trained = [model for model in models if model.method != "random"]
    return [
        column
        for column in block.columns
        if len({model.method for model in trained if (model, column) in block.done}) > 1
    ]
