"""The state of each cell that was started here or submitted to a cluster, as text and as a page.

A record or a failure that is newer than the start ends a cell. Versions of one file are compared,
since a file server's clock may differ from this machine's. The checkpoint need not be read.
"""

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from pretrain.running.atomic_files import write_whole
from transfer.cells.request import Cell
from transfer.record import failure_path, record_files

State = Literal["running", "failed", "cancelled", "stopped", "queued", "done"]
SIGNS: dict[State, str] = {
    "running": "▶",
    "failed": "✗",
    "cancelled": "–",
    "stopped": "■",
    "queued": "·",
    "done": "✓",
}
"""Signs of the states; the order in which cells are shown."""
COUNTED = ("running", "queued", "done", "failed", "cancelled", "stopped")
"""The order in which states are counted."""
STATUS_PAGE = "status.html"
REFRESH_S = 5

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta http-equiv="refresh" content="{refresh}">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 70rem;
padding: 0 1rem }}
table {{ border-collapse: collapse; width: 100% }}
td, th {{ text-align: left; padding: .25rem .75rem .25rem 0; border-bottom: 1px solid #8884;
vertical-align: top }}
td:nth-child(5) {{ overflow-wrap: anywhere }}
progress {{ width: 100%; height: 1rem }}
.failed, .cancelled {{ color: #d1495b }} .done {{ color: #2a9d8f }} .running {{ font-weight: 600 }}
.queued, .stopped {{ opacity: .6 }}
</style></head><body>
<h1>{title}</h1>
<progress max="{total}" value="{ended}"></progress>
<p>{counts}. Written {written}; this page loads itself again every {refresh} s.</p>
<table><tr><th>backbone</th><th>task</th><th>seed</th><th>state</th><th>detail</th></tr>
{rows}
</table></body></html>
"""


@dataclass(frozen=True, kw_only=True)
class StartedCell:
    """A cell, known by the path of its record."""

    backbone: str
    key: str
    seed: int
    record: str
    """Path of the cell's record; further records of the cell may lie beside it."""
    before: tuple[int, int]
    """Versions of the newest record and of the failure at the start, 0 where there was none."""

    @property
    def done(self) -> bool:
        """Return whether a record was written since the start."""
        return newest_version(Path(self.record)) not in (0, self.before[0])

    @property
    def failure(self) -> str | None:
        """Return the reason in a failure file written since the start; None if there is none."""
        path = failure_path(Path(self.record))
        if version(path) in (0, self.before[1]):
            return None
        return str((read_json(path) or {}).get("reason", ""))


def start_of(cell: Cell) -> dict[str, Any]:
    """Return the fields of a StartedCell for a cell that starts now."""
    path = cell.path.absolute()
    return {
        "backbone": cell.backbone.name,
        "key": cell.key,
        "seed": cell.seed,
        "record": str(path),
        "before": versions(path),
    }


AnyCell = TypeVar("AnyCell", bound=StartedCell, covariant=True)


@dataclass(frozen=True)
class CellState(Generic[AnyCell]):
    """State of a cell in the latest run or submission that has it."""

    cell: AnyCell
    state: State
    detail: str = ""
    """Progress, or the reason."""
    log: str = ""
    """File of messages, named below a cell that failed."""


States = Sequence[CellState[StartedCell]]


def versions(record: Path) -> tuple[int, int]:
    """Return the versions of a cell's newest record and of the failure file beside it."""
    return newest_version(record), version(failure_path(record))


def newest_version(record: Path) -> int:
    """Return the latest version among the records of the cell at this path, 0 if there is none."""
    return max(map(version, record_files(record)), default=0)


def version(path: Path) -> int:
    """Return the modification time of a file in ns, its version; 0 if there is no file."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the content of a JSON file; None if it is absent or torn."""
    try:
        content = json.loads(path.read_text(), object_hook=with_tuples)
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None


def with_tuples(content: dict[str, Any]) -> dict[str, Any]:
    """Return an object of a JSON file with tuples for its lists."""
    return {
        key: tuple(value) if isinstance(value, list) else value for key, value in content.items()
    }


def in_order(states: States) -> States:
    """Return the states, running cells first, then failed ones, finished ones last."""
    return sorted(states, key=lambda one: list(SIGNS).index(one.state))


def count_words(states: States, order: Sequence[str] = COUNTED) -> str:
    """Return the number of cells in each state, such as "2 running, 3 done"."""
    counts = {state: sum(one.state == state for one in states) for state in order}
    return ", ".join(f"{count} {state}" for state, count in counts.items() if count) or "no cells"


def render_states(states: States, order: Sequence[str] = COUNTED) -> str:
    """Return a line per cell and the counts, in the order of these states."""
    lines = [f"{'backbone':<16}{'task':<30}{'seed':<6}{'state':<11}detail"]
    for one in states:
        cell = one.cell
        head = f"{cell.backbone:<16}{cell.key:<30}{cell.seed:<6}{one.state:<11}"
        lines.append(f"{head}{one.detail}".rstrip())
        lines += [f"{'':<16}log: {one.log}"] * (one.state == "failed" and bool(one.log))
    return "\n".join([*lines, count_words(states, order)])


def is_over(states: States) -> bool:
    """Return whether no cell runs or waits."""
    return not any(one.state in ("running", "queued") for one in states)


def any_failed(states: States) -> bool:
    """Return whether a cell failed or was cancelled."""
    return any(one.state in ("failed", "cancelled") for one in states)


def status_page(states: States) -> str:
    """Return the page; all names and reasons are shown as text, whatever they hold."""
    lines = "\n".join(
        f'<tr class="{one.state}"><td>{escape(one.cell.backbone)}</td>'
        f"<td>{escape(one.cell.key)}</td><td>{one.cell.seed}</td>"
        f"<td>{SIGNS[one.state]} {one.state}</td><td>{escape(one.detail)}</td></tr>"
        for one in in_order(states)
    )
    return PAGE.format(
        refresh=REFRESH_S,
        title="States of the cells",
        total=max(1, len(states)),
        ended=sum(is_over([one]) for one in states),
        counts=count_words(states),
        written=time.strftime("%Y-%m-%d %H:%M:%S"),
        rows=lines,
    )


def write_status_page(runs: Path, states: States) -> Path:
    """Write the page below the runs; return its path. WriteError if that fails."""
    path = runs / STATUS_PAGE
    write_whole(path, status_page(states).encode(), "--runs")
    return path
