"""The cells of a run on this machine, as one file below the runs, and their states from files.

A record or a failure that is newer than the run ends a cell; the file that a running cell keeps
tells its progress. Nothing here asks the processes themselves, so the states can be read from
anywhere that sees the folder.
"""

import json
import os
import socket
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks.execution.status_rows import REFRESH_S, StatusRow, write_status_page
from transfer.cells.request import Cell
from transfer.record import failure_path, record_files, write_json
from transfer.running.atomic_files import WriteError
from transfer.running.console import PROGRESS_FILE, format_duration

FOLDER = "local"
FORMAT = "ssl-run/1"
SILENCE_S = 120.0
"""Time without progress after which a running cell's detail says so."""


@dataclass(frozen=True, kw_only=True)
class RunCell:
    """A cell that a run has to evaluate."""

    backbone: str
    key: str
    seed: int
    record: str
    """Path of the cell's record; further records of the cell may lie beside it."""
    work: str
    """Working folder of the cell."""
    before_ns: tuple[int, int]
    """Modification times of the newest record and of the failure at the start, 0 for none."""


@dataclass(frozen=True, kw_only=True)
class LocalRun:
    """A run on one machine."""

    host: str
    pid: int
    started: str
    results: str
    cells: tuple[RunCell, ...]

    @property
    def is_alive(self) -> bool:
        """Return whether its process runs; True for another machine, which cannot be asked."""
        return self.host != socket.gethostname() or _is_alive(self.pid)


def write_run_file(cells: Sequence[Cell], runs: Path) -> None:
    """Write the cells that a run will evaluate, in place of the files of runs that ended here."""
    folder = runs / FOLDER
    for path, run in _run_files(runs):
        if not run.is_alive or run.pid == os.getpid():
            path.unlink(missing_ok=True)
    if not cells:
        return
    run = LocalRun(
        host=socket.gethostname(),
        pid=os.getpid(),
        started=time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        results=str(cells[0].settings.results.absolute()),
        cells=tuple(map(_run_cell, cells)),
    )
    path = folder / f"{run.started.replace(':', '')}-{run.host}-{run.pid}.json"
    write_json(path, {"format": FORMAT, **asdict(run)}, "--runs")


def local_rows(runs: Path, results: Path | None = None) -> list[StatusRow]:
    """Return the state of each cell of the runs on this and other machines, latest run first.

    results: if given, only cells whose records belong into this folder.
    """
    folder = None if results is None else str(results.absolute())
    latest: dict[str, StatusRow] = {}
    for _, run in sorted(_run_files(runs), key=lambda pair: pair[1].started, reverse=True):
        if folder in (None, run.results):
            for cell in run.cells:
                if cell.record not in latest:
                    latest[cell.record] = _row(cell, run)
    return list(latest.values())


class StatusPage:
    """The page runs/status.html of a run on this machine."""

    def __init__(self, runs: Path) -> None:
        self.runs, self.written_s = runs, 0.0

    def refresh(self) -> None:
        """Write the page anew; a full disk is not an error here."""
        self.written_s = time.monotonic()
        with suppress(WriteError):
            write_status_page(self.runs, local_rows(self.runs))

    def refresh_if_old(self) -> None:
        """Write the page anew if that is longer ago than the page waits to load itself again."""
        if time.monotonic() - self.written_s > REFRESH_S:
            self.refresh()


def _run_cell(cell: Cell) -> RunCell:
    path = cell.path.absolute()
    return RunCell(
        backbone=cell.backbone.name,
        key=cell.key,
        seed=cell.seed,
        record=str(path),
        work=str(cell.folders.work.absolute()),
        before_ns=_times_ns(path),
    )


def _times_ns(record: Path) -> tuple[int, int]:
    newest = max(map(_time_ns, record_files(record)), default=0)
    return newest, _time_ns(failure_path(record))


def _time_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def _run_files(runs: Path) -> list[tuple[Path, LocalRun]]:
    found = []
    for path in sorted((runs / FOLDER).glob("*.json")):
        content = _read(path)
        if content is not None and content.get("format") == FORMAT:
            cells = tuple(
                RunCell(**{**cell, "before_ns": tuple(cell["before_ns"])})
                for cell in content["cells"]
            )
            known = {name: content[name] for name in ("host", "pid", "started", "results")}
            found.append((path, LocalRun(**known, cells=cells)))
    return found


def _row(cell: RunCell, run: LocalRun) -> StatusRow:
    """Return the state of a cell, from its record, failure and progress files."""
    record, failure = _times_ns(Path(cell.record))

    def with_state(state: str, detail: str = "") -> StatusRow:
        return StatusRow(cell.backbone, cell.key, cell.seed, state, detail, run.host)

    if record not in (0, cell.before_ns[0]):
        return with_state("done")
    if failure not in (0, cell.before_ns[1]):
        content = _read(failure_path(Path(cell.record))) or {}
        return with_state("failed", str(content.get("reason", "")))
    progress = Path(cell.work) / PROGRESS_FILE
    told = _read(progress)
    if told is not None and _belongs_to_living(told):
        silence = time.time() - _time_ns(progress) / 1e9
        words = (
            f"{told.get('step', '')}  {told.get('subject', '')}  {told.get('state', '')}".strip()
        )
        quiet = f"; no progress for {format_duration(silence)}" if silence > SILENCE_S else ""
        return with_state("running", words + quiet)
    if run.is_alive:
        return with_state("queued")
    return with_state("stopped", "its run has ended; the same command continues")


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
    return pid > 0


def _read(path: Path) -> dict[str, Any] | None:
    """Return the content of a JSON file; None if it is absent or torn."""
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None
