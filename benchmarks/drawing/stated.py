"""Numbers on figures that only the papers' running texts state."""

from typing import Any

from benchmarks.drawing.figure import printed_name
from benchmarks.pages.published import papers


def stated(figure_id: str, key: str) -> Any:
    """Return a stated number; KeyError if the text does not state it."""
    paper = next(p for p in papers() if p.id == figure_id.partition("/")[0])
    where = printed_name(figure_id)
    values = [s.values[key] for s in paper.stated if s.where == where and key in s.values]
    if not values:
        raise KeyError(f"{paper.name}, {where}: no stated number {key!r}")
    return values[0]
