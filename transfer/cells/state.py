"""The state of a cell: a JSON file next to its record.

It stores the request, so that any process can run the cell again. `--status` shows all states, the
tables show the reasons of failures, and the report lists requests without a result.
"""

from __future__ import annotations

import glob
import os
import socket
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pretrain.running.atomic_files import WriteError
from pretrain.running.console import progress_callback
from pretrain.running.errors import SuiteError
from transfer.cells.request import Request, from_json, to_json
from transfer.datasets.expected import Sizes, small_sizes
from transfer.record import RECORDS, STATE, STATE_FORMAT, read_json, state_path, write_json
from transfer.tasks import reading_of

if TYPE_CHECKING:
    from transfer.cells.cell import Cell

StateName = Literal[
    "running", "failed", "cancelled", "stopped", "queued", "missing data", "unsupported", "done"
]
STOPPED = "the same command resumes"
"""Reason in the state of a stopped cell."""
STALE_S = 3600.0
"""Seconds without an update after which another machine's process has ended."""


@dataclass(frozen=True, kw_only=True)
class State:
    """A state file and its content."""

    path: Path
    content: dict[str, Any]
    updated_s: float = 0.0
    """Time when its process last wrote a state, also of another cell."""

    @property
    def name(self) -> StateName:
        """The stored state, or "stopped" if its process has ended.

        Cells on a cluster keep the stored state, since only Slurm knows their processes.
        """
        stored: StateName = self.content["state"]
        if stored in ("queued", "running") and not self.is_submitted and not self._is_alive():
            return "stopped"
        return stored

    @property
    def is_submitted(self) -> bool:
        """Return whether the cell was submitted to a cluster."""
        return bool(self.content["log"])

    @property
    def reason(self) -> str:
        """Progress of a running cell, or the reason of any other state."""
        return STOPPED if self.name == "stopped" else str(self.content["reason"])

    @property
    def key(self) -> str:
        """Key in TASKS."""
        return str(self.content["request"]["task"])

    @property
    def runs_here(self) -> bool:
        """Return whether a running process of this machine wrote the state."""
        host, pid, started = self.process
        return host == socket.gethostname() and bool(started) and started == started_at(pid)

    @property
    def process(self) -> tuple[object, ...]:
        """Process that wrote the state: host, number and start."""
        return tuple(self.content.get(name) for name in ("host", "pid", "started"))

    def _is_alive(self) -> bool:
        if self.content["host"] != socket.gethostname():
            return time.time() - self.updated_s < STALE_S
        return self.runs_here


def started_at(pid: object) -> str:
    """Return when a process started, in clock ticks since boot; empty if it does not run.

    Another process may get the number later, such as 1 in a container. Zombies do not run.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if fields[0] == "Z" else fields[19]


def write(cell: Cell, name: StateName, reason: str = "", **fields: Any) -> None:
    """Write the state of a cell.

    A full disk is ignored, since the evaluation itself reports it. fields: further fields, such as
    the traceback of a failure.
    """
    with suppress(WriteError):
        store(state_path(cell.path), content(cell, name, reason) | fields)


def fail(cell: Cell, error: BaseException) -> None:
    """Write the reason of a failure."""
    write(cell, "failed", **_failure(error))


def fail_request(request: Request, error: BaseException) -> None:
    """Write why the checkpoint of a request could not be loaded.

    Without a checkpoint the cell has no name. The state file with the same request is changed.
    """
    request = replace(request.absolute(), file_sha256="")
    for state in read_states(request.settings.results):
        if from_json(Request, state.content["request"]) == request:
            with suppress(WriteError):
                store(state.path, state.content | {"state": "failed"} | _failure(error))


def _failure(error: BaseException) -> dict[str, str]:
    return {
        "reason": f"{type(error).__name__}: {error}".splitlines()[0],
        "traceback": "".join(traceback.format_exception(error)),
    }


@contextmanager
def reporting(cell: Cell) -> Iterator[None]:
    """Write a running cell's state: progress, then done, failed or stopped."""
    write(cell, "running", "starts")
    try:
        with progress_callback(lambda progress: write(cell, "running", progress)):
            yield
    except Exception as error:
        fail(cell, error)
        raise
    except BaseException:  # a signal, or Ctrl-C
        write(cell, "stopped", STOPPED)
        raise
    write(cell, "done")


def note_finished(cell: Cell) -> None:
    """Write that a cell with a record is done, if necessary."""
    if not is_done(cell):
        write(cell, "done")


def note_stopped(cell: Cell) -> None:
    """Write that a cell is stopped, if this process runs it or its process has ended here."""
    earlier = read_state(state_path(cell.path))
    if earlier is None or earlier.content["host"] != socket.gethostname():
        return
    is_ours = earlier.runs_here and earlier.content["pid"] == os.getpid()
    if earlier.name == "stopped" or (is_ours and earlier.name in ("queued", "running")):
        write(cell, "stopped", STOPPED)


def keep_alive(cell: Cell) -> None:
    """Update the time of a cell's state, by which other machines see that it still waits."""
    with suppress(OSError):
        os.utime(state_path(cell.path))


def is_done(cell: Cell) -> bool:
    """Return whether the cell's state is "done"."""
    stored = read_state(state_path(cell.path))
    return stored is not None and stored.name == "done"


def failure(cell: Cell) -> str:
    """Return the reason of the cell's failure, or an empty text."""
    content = read_json(state_path(cell.path)) or {}
    return str(content["reason"]) if content.get("state") == "failed" else ""


def read_state(path: Path) -> State | None:
    """Return the state in a file, or None if it is unusable."""
    content = read_json(path) or {}
    if content.get("format") != STATE_FORMAT:
        return None
    with suppress(OSError):
        return State(path=path, content=content, updated_s=path.stat().st_mtime)
    return None


def read_states(results: Path) -> list[State]:
    """Return the states of all cells in a results folder.

    Its subfolders may be links.
    """
    pattern = f"{glob.escape(str(results / RECORDS))}/**/*{STATE}"
    # Path.glob does not follow links
    files = sorted(glob.glob(pattern, recursive=True))  # noqa: PTH207
    states = [state for file in files if (state := read_state(Path(file))) is not None]
    updated_s: dict[object, float] = {}
    for state in states:  # a process that evaluates one cell writes no states of waiting ones
        updated_s[state.process] = max(state.updated_s, updated_s.get(state.process, 0.0))
    return [replace(state, updated_s=updated_s[state.process]) for state in states]


def content(cell: Cell, name: StateName, reason: str = "") -> dict[str, Any]:
    """Return the content of a cell's state file, without the fields of a submission."""
    small: dict[str, Sizes] = {}
    with suppress(SuiteError, OSError):  # the failure may be that this disk cannot be read
        small = dict(small_sizes(cell.settings.data))
    kinds = (small[key].origin for key in cell.task.datasets() if key in small)
    return {
        "format": STATE_FORMAT,
        "state": name,
        "reason": reason,
        "traceback": "",
        "backbone": cell.backbone.name,
        "sha256": cell.backbone.sha256,
        "file_sha256": cell.backbone.file_sha256,
        "task": reading_of(cell.key)[0],
        "protocol": cell.task.protocol,
        "schedule": cell.settings.schedule,
        "seed": cell.seed,
        "small": max(kinds, default=""),
        "primary_metric": cell.task.primary_metric,
        "heading": cell.task.heading,
        "missing_data": [],
        "request": to_json(cell.request.absolute()),
        "host": socket.gethostname(),
        "pid": os.getpid(),
        "started": started_at(os.getpid()),
    }


def store(path: Path, content: dict[str, Any]) -> None:
    """Write a state file and preserve the fields of its submission.

    They are also preserved while a process of another job evaluates the cell, until the submitted
    job ends.
    """
    job, earlier = _slurm_job(), read_json(path) or {}
    submission: dict[str, Any] = {"job": job, "log": "", "cluster": {}}
    is_under_way = earlier.get("state") in ("queued", "running")
    if job == earlier.get("job") or (not job and is_under_way):
        submission = {key: earlier.get(key, value) for key, value in submission.items()}
    write_json(path, submission | content, "--results")


def _slurm_job() -> str:
    """Return the id of this submitit job; empty in other Slurm jobs."""
    if "SUBMITIT_EXECUTOR" not in os.environ:
        return ""
    if "SLURM_ARRAY_TASK_ID" in os.environ:
        return f"{os.environ['SLURM_ARRAY_JOB_ID']}_{os.environ['SLURM_ARRAY_TASK_ID']}"
    return os.environ.get("SLURM_JOB_ID", "")
