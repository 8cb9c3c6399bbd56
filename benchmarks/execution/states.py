"""States of all cells in a results folder, as text and as a page.

Each cell has a state file (transfer/cells/state.py). Slurm is asked about the cells on a cluster.
"""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from html import escape
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING

from pretrain.running.atomic_files import WriteError, write_text
from transfer.cells.state import State, StateName, read_states

if TYPE_CHECKING:
    from slurm.state import JobState

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
"""Signs of the states; the order in which cells are shown and counted."""
STATUS_PAGE = "status.html"
REFRESH_S = 5
PAGE = Path(__file__).with_name("status.html")
EARLIER_FILES = ("local/*.json", "slurm/*/submission.json")
"""Files in the runs folder that earlier versions wrote instead of the state files."""


@dataclass(frozen=True)
class CellState:
    """State of a cell, as Slurm knows it if the cell was submitted."""

    stored: State
    name: StateName
    detail: str = ""
    """Progress, or the reason."""

    @property
    def identity(self) -> tuple[str, str, int]:
        """Backbone, task and seed."""
        return self.stored.content["backbone"], self.stored.key, self.stored.content["seed"]

    @property
    def log(self) -> str:
        """File of messages of a job that failed; empty for others, and if there is none."""
        log = self.stored.content["log"]
        return log if self.name == "failed" and log and Path(log).exists() else ""


States = Sequence[CellState]


def all_states(results: Path) -> tuple[States, str]:
    """Return the states of all cells, and why Slurm does not answer, if so."""
    stored = read_states(results)
    submitted = [state for state in stored if state.is_submitted and state.name != "done"]
    if not submitted:
        return [CellState(state, state.name, state.reason) for state in stored], ""
    known, no_answer = _submitted_states(submitted)
    return [known.get(s.path) or CellState(s, s.name, s.reason) for s in stored], no_answer


def _submitted_states(states: Sequence[State]) -> tuple[Mapping[Path, CellState], str]:
    """Return the states of submitted cells by path, and why Slurm does not answer, if so.

    Slurm says whether a job waits or runs; how it ended is in the cell's file first, so that it
    stays known after Slurm has forgotten the job.
    """
    from slurm.cluster import ClusterError  # cells without Slurm need none of it
    from slurm.state import JobState, job_states

    no_answer, known = "", dict[str, JobState]()
    try:
        known = job_states(list(dict.fromkeys(one.content["job"] for one in states)))
    except ClusterError as error:
        no_answer = str(error)
    found = {}
    for one in states:
        name, detail = _submitted_state(one, known, unanswered=bool(no_answer))
        found[one.path] = CellState(one, name, detail)
    return found, no_answer


def _submitted_state(
    one: State, known: Mapping[str, "JobState"], *, unanswered: bool
) -> tuple[StateName, str]:
    from slurm.state import JobState, last_log_line

    log = Path(one.content["log"])
    job, last_line = known.get(one.content["job"], JobState("unknown")), last_log_line(log)
    logged = f"; last log line: {last_line}" if last_line else ""
    if one.name == "running" and one.runs_here:  # also of a cell whose job is still queued
        return "running", one.reason
    if job.stage == "queued":
        return "queued", job.reason + logged
    if job.stage == "running":
        return "running", one.reason if one.name == "running" else last_line
    if one.name == "failed":
        return "failed", one.reason
    if job.word == "CANCELLED":
        return "cancelled", "by a user or an administrator"
    if job.word == "COMPLETED":  # its last state could not be written
        return "done", ""
    if unanswered:
        return "queued", "or running or killed; the cluster does not answer"
    if job.stage == "unknown" and not log.exists():  # Slurm drops such elements of an array
        return "cancelled", "before it began"
    return "failed", (job.word or "killed; the cluster does not say why") + logged


def in_order(states: States) -> States:
    """Return the states, running cells first, then failed ones, finished ones last."""
    return sorted(states, key=lambda state: list(SIGNS).index(state.name))


def count_words(states: States) -> str:
    """Return the number of cells in each state, such as "2 running, 3 done"."""
    counts = Counter(state.name for state in states)
    return ", ".join(f"{counts[name]} {name}" for name in SIGNS if counts[name]) or "no cells"


def render_states(states: States) -> str:
    """Return a line per cell, the logs of failed cells, and the counts."""
    lines = [f"{'backbone':<16}{'task':<30}{'seed':<6}{'state':<14}detail"]
    for state in states:
        backbone, key, seed = state.identity
        line = f"{backbone:<16}{key:<30}{seed:<6}{state.name:<14}{state.detail}"
        lines.append(line.rstrip())
        if state.log:
            lines.append(f"{'':<16}log: {state.log}")
    return "\n".join([*lines, count_words(states)])


def is_over(states: States) -> bool:
    """Return whether no cell runs or waits."""
    return not any(state.name in ("running", "queued") for state in states)


def any_failed(states: States) -> bool:
    """Return whether a cell failed or was cancelled."""
    return any(state.name in ("failed", "cancelled") for state in states)


def status_page(states: States) -> str:
    """Return the page; all names and reasons are shown as text, whatever they contain."""
    lines = []
    for state in in_order(states):
        detail = f"{state.detail}; log: {state.log}" if state.log else state.detail
        cells = (*state.identity, f"{SIGNS[state.name]} {state.name}", detail)
        columns = "".join(f"<td>{escape(str(cell))}</td>" for cell in cells)
        lines.append(f'<tr class="{state.name}">{columns}</tr>')
    return Template(PAGE.read_text(encoding="utf-8")).substitute(
        refresh=REFRESH_S,
        total=max(1, len(states)),
        ended=sum(is_over([state]) for state in states),
        counts=count_words(states),
        written=time.strftime("%Y-%m-%d %H:%M:%S"),
        rows="\n".join(lines),
    )


def write_status_page(results: Path, runs: Path, states: States | None = None) -> None:
    """Write the page of these states, or of all cells; a full disk is no error here."""
    with suppress(WriteError):
        page = status_page(all_states(results)[0] if states is None else states)
        write_text(runs / STATUS_PAGE, page, "--runs")


def earlier_work(runs: Path) -> str:
    """Return a line about unfinished work of an earlier version; empty if there is none."""
    files = [file for pattern in EARLIER_FILES for file in sorted(runs.glob(pattern))]
    if not files:
        return ""
    return (
        f"note: {files[0]} is of an earlier version, whose unfinished cells are not shown: run "
        f"them again, and delete {', '.join(dict.fromkeys(str(f.parent) for f in files))}"
    )
