"""Cells that were started here or submitted to a cluster, and their states, as text and as a page.

A record or a failure that is newer than the start ends a cell. Versions of one file are compared,
since a file server's clock may differ from this machine's. The checkpoint need not be read, and
nothing here asks the processes themselves, so the states can be read from anywhere that sees the
folder. The cells of a run on this machine are one file below the runs.
"""

import os
import socket
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from html import escape
from pathlib import Path
from string import Template
from typing import Any, Literal, Self

from pretrain.running.atomic_files import WriteError, write_text
from pretrain.running.console import PROGRESS_FILE
from slurm.resources import Resources
from transfer.cells.cell import Cell, failure_fields
from transfer.record import failure_path, read_json, record_files, write_json

State = Literal["running", "failed", "cancelled", "stopped", "queued", "done"]
SIGNS: dict[State, str] = {
    "running": "▶",
    "failed": "✗",
    "cancelled": "–",
    "stopped": "■",
    "queued": "·",
    "done": "✓",
}
"""Signs of the states; the order in which cells are shown and counted."""
STATUS_PAGE = "status.html"
REFRESH_S = 5
FOLDER = "local"
FORMAT = "ssl-run/3"
DEAD_S = 3600.0
"""Silence after which a run on another machine, which cannot be asked, counts as ended."""
PAGE = Path(__file__).with_name("status.html")


@dataclass(frozen=True, kw_only=True)
class StartedCell:
    """A cell, known by the path of its record; the last four fields are of cells on a cluster."""

    key: str
    described: dict[str, Any]
    """The words of a failure file on the cell itself, such as backbone and seed."""
    record: str
    """Path of the cell's record; further records of the cell may lie beside it."""
    work: str
    """Working folder of the cell."""
    before: tuple[int, ...]
    """Versions of the newest record and of the failure at the start, 0 where there was none."""
    words: tuple[str, ...] = ()
    """Arguments of benchmarks.execution.one_cell."""
    resources: Resources = field(default_factory=Resources)
    job: str = ""
    folder: str = ""
    """Folder of its submission."""

    @classmethod
    def of(cls, cell: Cell, **more: Any) -> Self:
        """Return the description of a cell that starts now."""
        path = cell.path.absolute()
        return cls(
            key=cell.key,
            described=failure_fields(cell),
            record=str(path),
            work=str(cell.folders.work.absolute()),
            before=versions(path),
            **more,
        )

    @classmethod
    def stored(cls, content: dict[str, Any]) -> Self:
        """Return the cell that a file describes."""
        return cls(**content | {"resources": Resources(**content["resources"])})

    @property
    def names(self) -> tuple[str, str, int]:
        """Return backbone, task and seed."""
        return self.described["backbone"], self.key, self.described["seed"]

    @property
    def identity(self) -> str:
        """Return the same path whichever links led to the folder of results."""
        return str(Path(self.record).resolve())

    @property
    def done(self) -> bool:
        """Return whether a record was written since the start."""
        return versions(Path(self.record))[0] not in (0, self.before[0])

    @property
    def failure(self) -> str | None:
        """Return the reason in a failure file written since the start; None if there is none."""
        path = failure_path(Path(self.record))
        if version(path) in (0, self.before[1]):
            return None
        return str((read_json(path) or {}).get("reason", ""))

    @property
    def log(self) -> Path:
        """Return the path of its messages."""
        from slurm.state import log_path  # cells without Slurm need none of it

        return log_path(Path(self.folder), self.job)


@dataclass(frozen=True)
class CellState:
    """State of a cell in the latest run or submission that has it."""

    cell: StartedCell
    state: State
    detail: str = ""
    """Progress, or the reason."""

    @property
    def log(self) -> str:
        """File of messages of a job that failed; empty for others, and if there is none."""
        job_failed = self.state == "failed" and bool(self.cell.job)
        return str(self.cell.log) if job_failed and self.cell.log.exists() else ""


States = Sequence[CellState]


def versions(record: Path) -> tuple[int, int]:
    """Return the versions of a cell's newest record and of the failure file beside it."""
    return max(map(version, record_files(record)), default=0), version(failure_path(record))


def version(path: Path) -> int:
    """Return the modification time of a file in ns, its version; 0 if there is no file."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


@dataclass(frozen=True, kw_only=True)
class LocalRun:
    """A run on one machine."""

    path: Path
    """File that describes it; names of later runs are later in the alphabet."""
    host: str
    pid: int
    results: str
    cells: tuple[StartedCell, ...]

    @property
    def is_alive(self) -> bool:
        """Return whether its process runs; another machine's must have written lately."""
        if self.host == socket.gethostname():
            return _is_alive(self.pid)
        files = [Path(cell.work) / PROGRESS_FILE for cell in self.cells]
        files += [self.path, *(Path(cell.record) for cell in self.cells)]
        return time.time() - max(map(version, files)) / 1e9 < DEAD_S


def write_run_file(cells: Sequence[Cell], runs: Path) -> None:
    """Write the cells that a run will evaluate, in place of the files of runs that ended here."""
    host, pid = socket.gethostname(), os.getpid()
    for run in _local_runs(runs):
        if run.host == host and (run.pid == pid or not run.is_alive):
            run.path.unlink(missing_ok=True)
    if not cells:
        return
    content = {
        "format": FORMAT,
        "host": host,
        "pid": pid,
        "results": str(cells[0].settings.results.absolute()),
        "cells": [asdict(StartedCell.of(cell)) for cell in cells],
    }
    start = time.strftime("%Y-%m-%dT%H%M%SZ", time.gmtime())
    write_json(runs / FOLDER / f"{start}-{host}-{pid}.json", content, "--runs")


def _local_runs(runs: Path) -> list[LocalRun]:
    found = []
    for path in sorted((runs / FOLDER).glob("*.json")):
        content = read_json(path) or {}
        if content.pop("format", "") == FORMAT:
            cells = tuple(map(StartedCell.stored, content.pop("cells")))
            found.append(LocalRun(path=path, cells=cells, **content))
    return found


def local_states(runs: Path, results: Path | None = None) -> list[CellState]:
    """Return the state of each cell of the runs on this and other machines, latest run first.

    results: if given, only cells whose records belong into this folder.
    """
    latest: dict[str, CellState] = {}
    for run in reversed(_local_runs(runs)):
        for cell in run.cells:
            if belongs(run.results, results) and cell.identity not in latest:
                latest[cell.identity] = CellState(cell, *_local_state(cell, run))
    return list(latest.values())


def belongs(stored: str, results: Path | None) -> bool:
    """Return whether a stored folder of results is this one, whichever path leads to it."""
    return results is None or Path(stored).resolve() == results.resolve()


def _local_state(cell: StartedCell, run: LocalRun) -> tuple[State, str]:
    """Return state and detail of a cell, from its record, failure and progress files."""
    if cell.done:
        return "done", ""
    if (reason := cell.failure) is not None:
        return "failed", reason
    progress = read_json(Path(cell.work) / PROGRESS_FILE)
    here = progress is not None and progress.get("host") == socket.gethostname()
    if progress is not None and (_is_alive(int(progress.get("pid", 0))) if here else run.is_alive):
        words = "  ".join(str(progress.get(key, "")) for key in ("step", "subject", "state"))
        return "running", words.strip()
    if run.is_alive:
        return "queued", ""
    return "stopped", "its run has ended; the same command continues"


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # a process of another user
        return True
    return pid > 0  # for kill, other numbers mean groups of processes


def in_order(states: States) -> States:
    """Return the states, running cells first, then failed ones, finished ones last."""
    return sorted(states, key=lambda one: list(SIGNS).index(one.state))


def count_words(states: States) -> str:
    """Return the number of cells in each state, such as "2 running, 3 done"."""
    counts = Counter(one.state for one in states)
    return ", ".join(f"{counts[state]} {state}" for state in SIGNS if counts[state]) or "no cells"


def render_states(states: States) -> str:
    """Return a line per cell, the logs of failed cells, and the counts."""
    lines = [f"{'backbone':<16}{'task':<30}{'seed':<6}{'state':<11}detail"]
    for one in states:
        backbone, key, seed = one.cell.names
        line = f"{backbone:<16}{key:<30}{seed:<6}{one.state:<11}{one.detail}"
        lines.append(line.rstrip())
        lines += [f"{'':<16}log: {one.log}"] * bool(one.log)
    return "\n".join([*lines, count_words(states)])


def is_over(states: States) -> bool:
    """Return whether no cell runs or waits."""
    return not any(one.state in ("running", "queued") for one in states)


def any_failed(states: States) -> bool:
    """Return whether a cell failed or was cancelled."""
    return any(one.state in ("failed", "cancelled") for one in states)


def status_page(states: States) -> str:
    """Return the page; all names and reasons are shown as text, whatever they hold."""
    lines = []
    for one in in_order(states):
        detail = one.detail + f"; log: {one.log}" * bool(one.log)
        words = (*one.cell.names, f"{SIGNS[one.state]} {one.state}", detail)
        columns = "".join(f"<td>{escape(str(word))}</td>" for word in words)
        lines.append(f'<tr class="{one.state}">{columns}</tr>')
    return Template(PAGE.read_text(encoding="utf-8")).substitute(
        refresh=REFRESH_S,
        total=max(1, len(states)),
        ended=sum(is_over([one]) for one in states),
        counts=count_words(states),
        written=time.strftime("%Y-%m-%d %H:%M:%S"),
        rows="\n".join(lines),
    )


def write_status_page(runs: Path, states: States | None = None) -> None:
    """Write the page of these states, or of all cells on machines; a full disk is no error here."""
    with suppress(WriteError):
        page = status_page(local_states(runs) if states is None else states)
        write_text(runs / STATUS_PAGE, page, "--runs")
