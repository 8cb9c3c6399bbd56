"""The cells of a run on this machine, as one file below the runs, and their states from files.

The file that a running cell keeps tells its progress. Nothing here asks the processes themselves,
so the states can be read from anywhere that sees the folder.
"""

import calendar
import os
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.execution.states import (
    CellState,
    StartedCell,
    State,
    read_json,
    start_of,
    version,
    write_status_page,
)
from pretrain.running.atomic_files import WriteError
from transfer.cells.request import Cell
from transfer.record import write_json
from transfer.running.console import PROGRESS_FILE, format_duration

FOLDER = "local"
FORMAT = "ssl-run/2"
TIME_FORMAT = "%Y-%m-%dT%H:%M:%SZ"
DEAD_S = 3600.0
"""Silence after which a run on another machine, which cannot be asked, counts as ended."""
SILENCE_S = 120.0
"""Time without progress after which a running cell's detail says so."""


@dataclass(frozen=True, kw_only=True)
class RunCell(StartedCell):
    """A cell that a run has to evaluate."""

    work: str
    """Working folder of the cell."""


@dataclass(frozen=True, kw_only=True)
class LocalRun:
    """A run on one machine."""

    host: str
    pid: int
    started: str
    results: str
    cells: tuple[RunCell, ...]

    @property
    def is_here(self) -> bool:
        """Return whether this machine runs it."""
        return self.host == socket.gethostname()

    @property
    def is_alive(self) -> bool:
        """Return whether its process runs; another machine's must have written lately."""
        if self.is_here:
            return _is_alive(self.pid)
        files = [Path(cell.work) / PROGRESS_FILE for cell in self.cells]
        files += [Path(cell.record) for cell in self.cells]
        newest = max(map(version, files), default=0) / 1e9
        begun = calendar.timegm(time.strptime(self.started, TIME_FORMAT))
        return time.time() - max(newest, begun) < DEAD_S


def write_run_file(cells: Sequence[Cell], runs: Path) -> None:
    """Write the cells that a run will evaluate, in place of the files of runs that ended here."""
    folder = runs / FOLDER
    for path, run in _run_files(runs):
        if run.is_here and (run.pid == os.getpid() or not run.is_alive):
            path.unlink(missing_ok=True)
    if not cells:
        return
    run = LocalRun(
        host=socket.gethostname(),
        pid=os.getpid(),
        started=time.strftime(TIME_FORMAT, time.gmtime()),
        results=str(cells[0].settings.results.absolute()),
        cells=tuple(
            RunCell(**start_of(cell), work=str(cell.folders.work.absolute())) for cell in cells
        ),
    )
    path = folder / f"{run.started.replace(':', '')}-{run.host}-{run.pid}.json"
    write_json(path, {"format": FORMAT, **asdict(run)}, "--runs")


def local_states(runs: Path, results: Path | None = None) -> list[CellState[RunCell]]:
    """Return the state of each cell of the runs on this and other machines, latest run first.

    results: if given, only cells whose records belong into this folder.
    """
    folder = None if results is None else str(results.absolute())
    latest: dict[str, CellState[RunCell]] = {}
    for _, run in sorted(_run_files(runs), key=lambda pair: pair[1].started, reverse=True):
        if folder in (None, run.results):
            for cell in run.cells:
                if cell.record not in latest:
                    latest[cell.record] = CellState(cell, *_state(cell, run))
    return list(latest.values())


def refresh_page(runs: Path) -> None:
    """Write the page of all states anew; a full disk is not an error here."""
    with suppress(WriteError):
        write_status_page(runs, local_states(runs))


def _run_files(runs: Path) -> list[tuple[Path, LocalRun]]:
    found = []
    for path in sorted((runs / FOLDER).glob("*.json")):
        content = read_json(path) or {}
        if content.pop("format", "") == FORMAT:
            cells = tuple(RunCell(**cell) for cell in content.pop("cells"))
            found.append((path, LocalRun(**content, cells=cells)))
    return found


def _state(cell: RunCell, run: LocalRun) -> tuple[State, str]:
    """Return state and detail of a cell, from its record, failure and progress files."""
    if cell.done:
        return "done", ""
    if (reason := cell.failure) is not None:
        return "failed", reason
    progress = Path(cell.work) / PROGRESS_FILE
    told = read_json(progress)
    if told is not None and _belongs_to_living(told):
        silence = time.time() - version(progress) / 1e9
        words = "  ".join(str(told.get(name, "")) for name in ("step", "subject", "state")).strip()
        quiet = f"; no progress for {format_duration(silence)}" if silence > SILENCE_S else ""
        return "running", words + quiet
    if run.is_alive:
        return "queued", ""
    return "stopped", "its run has ended; the same command continues"


def _belongs_to_living(told: dict[str, Any]) -> bool:
    """Return whether the process of a progress file runs; True if it is another machine's."""
    return told.get("host") != socket.gethostname() or _is_alive(int(told.get("pid", 0)))


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # a process of another user
        return True
    return pid > 0  # for kill, other numbers mean groups of processes
