"""States of submitted cells: queued, running, done, failed or cancelled, with reason and log.

Records are consulted first, then Slurm, then the files that a job has left. So the states stay
right long after Slurm has forgotten the job, and where there is no accounting.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from benchmarks.cluster.submission import Submission, SubmittedCell, submissions
from benchmarks.execution.status_rows import StatusRow, render_rows
from slurm.cluster import ClusterError
from slurm.state import JobState, job_states, last_log_line, log_path, saved_error

CONSEQUENCES = {
    "extraction": "each cell extracts its own features",
    "tables": "to write them, run python -m benchmarks.tables",
}
"""Consequence of a failed helper job."""
State = Literal["queued", "running", "done", "failed", "cancelled"]


@dataclass(frozen=True)
class CellStatus:
    """State of a cell in its latest submission."""

    submission: Submission
    cell: SubmittedCell
    state: State
    detail: str
    """Progress, or the reason."""

    @property
    def row(self) -> StatusRow:
        """Return the state as it is shown."""
        cell, log = self.cell, log_path(self.submission.folder, self.cell.job)
        return StatusRow(
            cell.backbone, cell.key, cell.seed, self.state, self.detail, "cluster", str(log)
        )


def statuses(runs: Path, results: Path | None = None) -> tuple[list[CellStatus], str]:
    """Return the status of every cell ever submitted below `runs`.

    results: if given, only cells whose records belong into this folder. The second value says why
    Slurm did not answer; it is empty if it did.
    """
    latest: dict[str, tuple[Submission, SubmittedCell]] = {}
    for submission in _submissions_with(runs, results):
        for cell in submission.cells:
            latest[cell.record] = (submission, cell)
    known, no_answer = _query_jobs([cell.job for _, cell in latest.values() if not cell.done])
    return [_cell_status(*pair, known, bool(no_answer)) for pair in latest.values()], no_answer


def print_statuses(runs: Path, results: Path | None = None) -> int:
    """Print the status of every cell submitted below `runs`, or of those of a folder of results.

    Returns 1 if any of them failed or was cancelled, else 0.
    """
    cells, no_answer = statuses(runs, results)
    if not cells:
        print(f"nothing was submitted below {runs}" + (f" for {results}" if results else ""))
        return 0
    print("\n".join([render_statuses(cells, no_answer), *failed_helper_lines(runs, results)]))
    return int(any(status.state in ("failed", "cancelled") for status in cells))


def status_of(submission: Submission) -> list[CellStatus]:
    """Return the status of the cells of one submission."""
    known, no_answer = _query_jobs([cell.job for cell in submission.cells if not cell.done])
    return [_cell_status(submission, cell, known, bool(no_answer)) for cell in submission.cells]


def _submissions_with(runs: Path, results: Path | None) -> list[Submission]:
    """Return the submissions below `runs`, all or only those of one folder of results."""
    folder = None if results is None else str(results.absolute())
    return [one for one in submissions(runs) if folder in (None, one.results)]


def failed_helper_lines(runs: Path, results: Path | None = None) -> list[str]:
    """Return a line with the log for each failed helper job of the latest submission."""
    *_, last = [None, *_submissions_with(runs, results)]
    if last is None:
        return []
    known, _ = _query_jobs(last.helpers)
    lines = []
    for job in last.helpers:
        error = saved_error(last.folder, job)
        state = known.get(job, JobState("unknown"))
        died = (
            error is None
            and state.stage == "ended"
            and state.word not in ("COMPLETED", "CANCELLED")
        )
        if state.stage in ("queued", "running") or not (error or died):
            continue
        what = "tables" if job == last.helpers[-1] else "extraction"
        log = log_path(last.folder, job)
        reason = "; ".join(part for part in (error or state.reason, last_log_line(log)) if part)
        lines.append(f"{what} failed: {reason}; {CONSEQUENCES[what]}\n{'':<16}log: {log}")
    return lines


def _query_jobs(jobs: Sequence[str]) -> tuple[dict[str, JobState], str]:
    """Return the states of the jobs that Slurm knows, and why it did not answer."""
    if not jobs:
        return {}, ""
    try:
        return job_states(list(dict.fromkeys(jobs))), ""
    except ClusterError as error:
        return {}, str(error)


def _cell_status(
    submission: Submission, cell: SubmittedCell, known: dict[str, JobState], unanswered: bool
) -> CellStatus:
    def with_state(state: State, detail: str = "") -> CellStatus:
        return CellStatus(submission, cell, state, detail)

    if cell.done:
        return with_state("done")
    job = known.get(cell.job, JobState("unknown"))
    last_line = last_log_line(log_path(submission.folder, cell.job))
    if job.stage == "queued":
        return with_state(
            "queued", f"{job.reason}; last log line: {last_line}" if last_line else job.reason
        )
    if job.stage == "running":
        return with_state("running", last_line)
    if job.word == "CANCELLED":
        return with_state("cancelled", "by a user or an administrator")
    error = saved_error(submission.folder, cell.job)
    if error == "":  # it ended well without a new record: it found that of another run
        return with_state("done")
    reason = cell.failure or "; ".join(part for part in (error, last_line) if part)
    if error is None and not cell.failure:
        if unanswered:
            return with_state("queued", "or running or killed; the cluster does not answer")
        ended = job.word or "killed; the cluster does not say why"
        reason = f"{ended}; last log line: {last_line}" if last_line else ended
    return with_state("failed", reason)


def render_statuses(cells: Sequence[CellStatus], no_answer: str) -> str:
    """Return the states as text: a line per cell, the logs of failed cells, and the counts."""
    lines = [render_rows([status.row for status in cells], get_args(State))]
    if no_answer:
        lines.append(f"the cluster does not answer: {no_answer}")
    if any(status.state in ("failed", "cancelled") for status in cells):
        lines.append(
            "run_all.py --retry-failed submits them again; each continues where it stopped"
        )
    return "\n".join(lines)
