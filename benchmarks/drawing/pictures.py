"""Captions, file names and stated numbers, which all figures share."""

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from benchmarks.drawing.figure import Identity, Panel, Picture, printed_name
from benchmarks.drawing.kinds import Kind
from benchmarks.pages.published import papers
from benchmarks.pages.reasons import schedule_words


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
    paper = next(p for p in papers() if p.id == figure_id.partition("/")[0])
    where = printed_name(figure_id)
    values = [s.values[key] for s in paper.stated if s.where == where and key in s.values]
    if not values:
        raise KeyError(f"{paper.name}, {where}: no stated number {key!r}")
    return values[0]
