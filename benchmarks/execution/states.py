"""States of all cells, as text and as a page.

Each cell has a state file (transfer/cells/state.py). The states of cells on a cluster also depend
on the states of their Slurm jobs.
"""

import os
import sys
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from html import escape
from pathlib import Path
from string import Template

from pretrain.running.atomic_files import WriteError, write_text
from slurm.cluster import ClusterError
from slurm.state import JobState, job_states, last_log_line
from transfer.cells.state import State, StateName, read_states

SIGNS: dict[StateName, str] = {
    "running": "▶",
    "failed": "✗",
    "cancelled": "–",
    "stopped": "■",
    "queued": "·",
    "missing data": "∅",
    "unsupported": "∅",
    "done": "✓",
}
"""Signs of the states, in the order in which cells are listed."""
STATUS_PAGE = "status.html"
REFRESH_S = 5
PAGE = Path(__file__).with_name("status.html")
EARLIER_FILES = ("local/*.json", "slurm/*/submission.json")
"""Files in --runs that earlier versions wrote instead of state files."""


@dataclass(frozen=True)
class CellState:
    """State of a cell, including the state of its Slurm job."""

    stored: State
    name: StateName
    detail: str = ""
    """Progress, or the reason of a failure."""

    @property
    def identity(self) -> tuple[str, str, int]:
        """Backbone, task and seed."""
        return self.stored.content["backbone"], self.stored.key, self.stored.content["seed"]

    @property
    def log(self) -> str:
        """Path of the log of a failed job, or ""."""
        log = self.stored.content["log"]
        return log if self.name == "failed" and os.access(log, os.R_OK) else ""


States = Sequence[CellState]


def all_states(results: Path, *, ask_slurm: bool = True) -> tuple[States, str]:
    """Return the states of all cells, and Slurm's error message or "".

    Slurm reports whether a job waits or runs. How it ended is read from the cell's file, since
    Slurm stores ended jobs only for a short time.

    ask_slurm: otherwise, cells on a cluster have their stored states.
    """
    stored, message, jobs = read_states(results), "", dict[str, JobState]()
    ids = [s.content["job"] for s in stored if s.is_submitted and s.name != "done"]
    try:
        jobs = job_states(list(dict.fromkeys(ids))) if ids and ask_slurm else jobs
    except ClusterError as error:
        message = str(error)
    states = []
    for state in stored:
        name, detail = state.name, state.reason
        if ask_slurm and state.is_submitted and name != "done":
            name, detail = _submitted_state(state, jobs, unanswered=bool(message))
        states.append(CellState(state, name, detail))
    return states, message


def _submitted_state(
    state: State, jobs: Mapping[str, JobState], *, unanswered: bool
) -> tuple[StateName, str]:
    log = Path(state.content["log"])
    job, last_line = jobs.get(state.content["job"], JobState("unknown")), last_log_line(log)
    log_note = f"; last log line: {last_line}" if last_line else ""
    if state.name == "running" and state.runs_here:  # even if its job is still queued
        return "running", state.reason
    if job.stage == "queued":
        return "queued", job.reason + log_note
    if state.name == "failed":  # its job may still evaluate other cells
        return "failed", state.reason
    if job.stage == "running":
        return "running", state.reason if state.name == "running" else last_line
    if job.slurm_state == "CANCELLED":
        return "cancelled", "by a user or an administrator"
    if job.slurm_state == "COMPLETED":  # its last state could not be written
        return "done", ""
    if unanswered:
        return "queued", "or running or killed; the cluster does not respond"
    if job.stage == "unknown" and not os.access(log, os.F_OK):
        return "cancelled", "before it started"  # Slurm forgets such elements of an array
    return "failed", (job.slurm_state or "killed; the cluster reports no reason") + log_note


def count_words(states: States) -> str:
    """Return the counts of states, such as "2 running, 3 done"."""
    counts = Counter(state.name for state in states)
    return ", ".join(f"{counts[name]} {name}" for name in SIGNS if counts[name]) or "no evaluations"


def render_states(states: States) -> str:
    """Return a line per cell, logs of failed cells, and counts."""
    width = max([16, *(len(state.identity[0]) + 2 for state in states)])
    task_width = max([30, *(len(state.identity[1]) + 2 for state in states)])
    lines = [f"{'backbone':<{width}}{'task':<{task_width}}{'seed':<6}{'state':<14}detail"]
    for state in states:
        backbone, key, seed = state.identity
        line = f"{backbone:<{width}}{key:<{task_width}}{seed:<6}{state.name:<14}{state.detail}"
        lines.append(line.rstrip())
        if state.log:
            lines.append(f"{'':<{width}}log: {state.log}")
    return "\n".join([*lines, count_words(states)])


def is_over(states: States) -> bool:
    """Return whether no cell runs or waits."""
    return not any(state.name in ("running", "queued") for state in states)


def any_failed(states: States) -> bool:
    """Return whether a cell failed or was cancelled."""
    return any(state.name in ("failed", "cancelled") for state in states)


def status_page(states: States) -> str:
    """Return the page as HTML; names and reasons are escaped."""
    rows = []
    for state in sorted(states, key=lambda state: list(SIGNS).index(state.name)):
        detail = f"{state.detail}; log: {state.log}" if state.log else state.detail
        columns = (*state.identity, f"{SIGNS[state.name]} {state.name}", detail)
        html = "".join(f"<td>{escape(str(column))}</td>" for column in columns)
        rows.append(f'<tr class="{state.name}">{html}</tr>')
    return Template(PAGE.read_text(encoding="utf-8")).substitute(
        refresh=REFRESH_S,
        total=max(1, len(states)),
        ended=sum(is_over([state]) for state in states),
        counts=count_words(states),
        written=time.strftime("%Y-%m-%d %H:%M:%S"),
        rows="\n".join(rows),
    )


def write_status_page(results: Path, runs: Path, states: States | None = None) -> None:
    """Write the page of these states, or of all cells.

    It does not wait for a cluster, which would delay the signals of a run on this machine.
    """
    with suppress(WriteError):  # a full disk must not stop a run
        page = status_page(all_states(results, ask_slurm=False)[0] if states is None else states)
        write_text(runs / STATUS_PAGE, page, "--runs")


def earlier_work(runs: Path) -> str:
    """Return a note on unfinished work of an earlier version, or ""."""
    files = [file for pattern in EARLIER_FILES for file in sorted(runs.glob(pattern))]
    if not files:
        return ""
    folders = dict.fromkeys(str(file.parent) for file in files)
    return (
        f"note: {files[0]} was written by an earlier version. Its unfinished evaluations are not "
        f"shown. Run them again, and delete {', '.join(folders)}"
    )


def print_states(results: Path, runs: Path) -> int:
    """Print the states of all cells; return 1 if one failed."""
    states, no_answer = all_states(results)
    if not states:
        print(f"no evaluations were started or submitted with --results {results}")
    else:
        print(render_states(states))
    if no_answer:
        print(f"the cluster does not respond: {no_answer}")
    if any_failed([state for state in states if state.stored.is_submitted]):
        print("to submit them again: run_all.py --retry-failed (each resumes where it stopped)")
    if line := earlier_work(runs):
        print(line)
    return int(any_failed(states))


def watch(results: Path, runs: Path, interval_s: float = 5.0) -> int:
    """Print counts when they change, until no cell runs or waits.

    Each time, the page runs/status.html is updated. Ctrl-C ends the view, not the run. Returns 1 if
    a cell failed or was cancelled, otherwise 0.
    """
    previous = ""
    try:
        while not is_over((current := all_states(results))[0]):
            states, no_answer = current
            write_status_page(results, runs, states)
            counts = "; ".join(filter(None, [count_words(states), no_answer]))
            if counts != previous:
                print(f"{time.strftime('%H:%M:%S')}  {counts}", file=sys.stderr, flush=True)
            previous = counts
            time.sleep(interval_s)
    except KeyboardInterrupt:
        return 0
    if current[0]:
        write_status_page(results, runs, current[0])
    return print_states(results, runs)
