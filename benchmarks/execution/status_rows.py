"""States of cells as text, and as a page that refreshes itself when it is opened from the disk."""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path

from pretrain.running.atomic_files import write_whole

STATES = ("running", "queued", "done", "failed", "cancelled", "stopped")
SIGNS = {
    "running": "▶",
    "queued": "·",
    "done": "✓",
    "failed": "✗",
    "cancelled": "–",
    "stopped": "■",
}
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


@dataclass(frozen=True)
class StatusRow:
    """State of a cell, of a run on a machine or of a submission to a cluster."""

    backbone: str
    key: str
    seed: int
    state: str
    """One of STATES."""
    detail: str
    """Progress, or the reason."""
    place: str = ""
    """Machine that runs it, or "cluster"."""
    log: str = ""
    """File of messages, named below a cell that failed."""


def in_order(rows: Sequence[StatusRow]) -> list[StatusRow]:
    """Return the rows, running ones first, then failed ones, finished ones last."""
    order = ("running", "failed", "cancelled", "stopped", "queued", "done")
    return sorted(rows, key=lambda row: order.index(row.state))


def count_words(rows: Sequence[StatusRow], states: Sequence[str] = STATES) -> str:
    """Return the number of cells in each state, such as "2 running, 3 done"."""
    counts = {state: sum(row.state == state for row in rows) for state in states}
    return ", ".join(f"{count} {state}" for state, count in counts.items() if count) or "no cells"


def render_rows(rows: Sequence[StatusRow], states: Sequence[str] = STATES) -> str:
    """Return a line per cell and the counts, in the order of these states."""
    lines = [f"{'backbone':<16}{'task':<30}{'seed':<6}{'state':<11}detail"]
    for row in rows:
        head = f"{row.backbone:<16}{row.key:<30}{row.seed:<6}{row.state:<11}"
        lines.append(f"{head}{row.detail}".rstrip())
        lines += [f"{'':<16}log: {row.log}"] * (row.state == "failed" and bool(row.log))
    return "\n".join([*lines, count_words(rows, states)])


def is_over(rows: Sequence[StatusRow]) -> bool:
    """Return whether no cell runs or waits."""
    return not any(row.state in ("running", "queued") for row in rows)


def status_page(rows: Sequence[StatusRow]) -> str:
    """Return the page; all names and reasons are shown as text, whatever they hold."""
    lines = "\n".join(
        f'<tr class="{row.state}"><td>{escape(row.backbone)}</td><td>{escape(row.key)}</td>'
        f"<td>{row.seed}</td><td>{SIGNS[row.state]} {row.state}</td>"
        f"<td>{escape(row.detail)}</td></tr>"
        for row in in_order(rows)
    )
    ended = sum(row.state not in ("running", "queued") for row in rows)
    return PAGE.format(
        refresh=REFRESH_S,
        title="States of the cells",
        total=max(1, len(rows)),
        ended=ended,
        counts=count_words(rows),
        written=time.strftime("%Y-%m-%d %H:%M:%S"),
        rows=lines,
    )


def write_status_page(runs: Path, rows: Sequence[StatusRow]) -> Path:
    """Write the page below the runs; return its path. WriteError if that fails."""
    path = runs / STATUS_PAGE
    write_whole(path, status_page(rows).encode(), "--runs")
    return path
