"""Captions, file names and stated numbers, which all figures share."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from benchmarks.drawing.figure import Identity, Panel, Picture, printed_name
from benchmarks.drawing.kinds import Kind, value_text
from benchmarks.pages.blocks import schedule_words
from benchmarks.pages.published import Statement, papers
from benchmarks.pages.records import Model


def captioned(
    figure: Identity,
    panels: Panel | Sequence[Panel],
    sentences: Sequence[str],
    *,
    exact: bool,
    columns: int = 0,
    header: tuple[str, ...],
    rows: Sequence[tuple[str, ...]],
) -> Picture:
    """Return a picture whose caption names the printed figure and says how ours differs.

    exact: all results are those of the paper's recipes under its protocol. columns: panels of one
    row; all if not given.
    """
    paper = next(p for p in papers() if p.id == figure.id.partition("/")[0])
    name = printed_name(figure.id)
    own = "" if exact else "Not the paper's runs or data: compare the shape, not the numbers."
    opening = f"{name} of {paper.name} (arXiv:{paper.arxiv}): {figure.what}."
    shown = tuple(panels) if isinstance(panels, Sequence) else (panels,)
    return Picture(
        file_name=figure.file_name,
        title=f"{paper.name}, {name}",
        panels=shown,
        columns=columns or len(shown),
        caption=tuple(text for text in (opening, own, *sentences, *figure.remarks) if text),
        header=header,
        rows=tuple(rows),
    )


def numbered(
    file_name: str, pictures: Sequence[Picture], kinds: Sequence[Kind]
) -> tuple[Picture, ...]:
    """Return the pictures with file names: the first has the figure's, others say their kind."""
    names: list[str] = []
    for kind in kinds:
        words = [kind.task, schedule_words(kind.schedule), *kind.pretraining[2:]] if names else []
        name = ".".join([file_name, *(re.sub(r"[^\w.]+", "-", word) for word in words if word)])
        count = 1 + sum(other == name or other.startswith(f"{name}.no") for other in names)
        names.append(name if count == 1 else f"{name}.no{count}")
    return tuple(
        replace(picture, file_name=name) for picture, name in zip(pictures, names, strict=True)
    )


def stated(figure_id: str, key: str) -> Any:
    """Return a stated number; KeyError if the text does not state it."""
    values = [one.values[key] for one in statements(figure_id) if key in one.values]
    if not values:
        raise KeyError(f"{figure_id}: no stated number {key!r}")
    return values[0]


def statements(figure_id: str) -> list[Statement]:
    """Return what the text states on a figure."""
    paper = next(p for p in papers() if p.id == figure_id.partition("/")[0])
    return [one for one in paper.stated if one.where == printed_name(figure_id)]


def paper_sentences(
    figure_id: str, models: Mapping[str, Sequence[Model]], varied: Iterable[str] = ()
) -> list[str]:
    """Return the sentence on the settings in which each line's runs differ from the paper's.

    varied: settings on the x axis. Without a difference, or without records of settings: nothing.
    """
    left_out = {*varied}
    lines = []
    for label, own in models.items():
        run = own[0].settings
        words = [
            f"{symbol} {value_text(run[name])} ({', '.join([value_text(paper), *source])})"
            for one in statements(figure_id)
            for symbol, (name, paper, *source) in one.settings.get(own[0].method, {}).items()
            if name in run and name not in left_out and run[name] != paper
        ]
        lines += [f"{label}: {', '.join(words)}"] * bool(words)
    return [f"Settings unlike the paper's, whose are in brackets: {'; '.join(lines)}."] * bool(
        lines
    )
