"""Submissions to a cluster, a JSON file for each, and the states of their cells.

Records are consulted first, then Slurm, then the files that a job has left. So the states stay
right long after Slurm has forgotten the job, and where there is no accounting.

python -m benchmarks.cluster.cell_status runs/slurm/WHEN/submission.json is the last job of a
submission: it notes the failures of killed cells, writes tables and report.
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.execution.states import (
    CellState,
    StartedCell,
    State,
    States,
    any_failed,
    belongs,
    render_states,
)
from pretrain.running.atomic_files import explain_write_errors
from slurm.cluster import ClusterError
from slurm.resources import Queue
from slurm.state import JobState, job_states, last_log_line, log_path, saved_error
from slurm.submit import unique_name
from transfer.record import read_json, write_failure, write_json

FILE = "submission.json"
FORMAT = "ssl-submission/2"
CONSEQUENCES = {
    "extraction": "each cell extracts its own features",
    "tables": "to write them, run python -m benchmarks.tables",
}
"""Consequence of a failed helper job."""
GOOD_ENDS = ("COMPLETED", "CANCELLED")


@dataclass(frozen=True, kw_only=True)
class Submission:
    """Arrays that were submitted together."""

    folder: Path
    """Folder of this file, logs and pickles."""
    results: str
    parallel: int
    queue: Queue
    tables_partition: str
    """Partition of the job that writes the tables; the queue's if empty."""
    cells: tuple[StartedCell, ...]
    helpers: tuple[str, ...]
    """Jobs that extract features for several cells, and last the job that writes the tables."""

    def save(self) -> Path:
        """Write the submission file whole or not at all; return its path."""
        content = asdict(self) | {"format": FORMAT}
        del content["folder"]
        write_json(self.folder / FILE, content, "--runs")
        return self.folder / FILE


def new_folder(runs: Path) -> Path:
    """Create an empty folder for a submission, named after the time; return its path."""
    folder = (runs / "slurm" / unique_name()).absolute()
    with explain_write_errors(folder, "--runs"):
        folder.mkdir(parents=True)
    return folder


def read_submission(path: Path) -> Submission:
    """Read a submission file; ValueError if it is not one."""
    content = read_json(path) or {}
    if content.pop("format", "") != FORMAT:
        raise ValueError(f"{path}: not a submission (expected format {FORMAT!r})")
    cells = tuple(map(StartedCell.stored, content.pop("cells")))
    queue = Queue(**content.pop("queue"))
    return Submission(folder=path.parent, queue=queue, cells=cells, **content)


def submissions(runs: Path, results: Path | None = None) -> Iterator[Submission]:
    """Yield the submissions below the runs, oldest first, all or those of a folder of results."""
    for path in sorted((runs / "slurm").glob(f"*/{FILE}")):
        submission = read_submission(path)
        if belongs(submission.results, results):
            yield submission


def submitted_states(runs: Path, results: Path | None = None) -> tuple[list[CellState], str]:
    """Return the state of every cell ever submitted below `runs`, in its latest submission.

    results: if given, only cells whose records belong into this folder. The second value says why
    Slurm did not answer; it is empty if it did.
    """
    every = (cell for one in submissions(runs, results) for cell in one.cells)
    return states_of({cell.identity: cell for cell in every}.values())


def states_of(cells: Iterable[StartedCell]) -> tuple[list[CellState], str]:
    """Return the states of these cells, and why Slurm did not answer."""
    cells = list(cells)
    known, no_answer = _query_jobs([cell.job for cell in cells if not cell.done])
    states = [CellState(cell, *_state(cell, known, unanswered=bool(no_answer))) for cell in cells]
    return states, no_answer


def failed_helper_lines(runs: Path, results: Path | None = None) -> list[str]:
    """Return a line with the log for each failed helper job of the latest submission."""
    lines = []
    for last in list(submissions(runs, results))[-1:]:
        ended, _ = _query_jobs(last.helpers)
        for job in last.helpers:
            error, state = saved_error(last.folder, job), ended.get(job, JobState("unknown"))
            if error is None and state.stage == "ended" and state.word not in GOOD_ENDS:
                error = state.reason  # it was killed before it could save one
            if error:
                what = "tables" if job == last.helpers[-1] else "extraction"
                log = log_path(last.folder, job)
                lines.append(f"{what} failed: {error}; {CONSEQUENCES[what]}\n{'':<16}log: {log}")
    return lines


def _query_jobs(jobs: Sequence[str]) -> tuple[dict[str, JobState], str]:
    """Return the states of the jobs that Slurm knows, and why it did not answer."""
    if not jobs:
        return {}, ""
    try:
        return job_states(list(dict.fromkeys(jobs))), ""
    except ClusterError as error:
        return {}, str(error)


def _state(cell: StartedCell, known: dict[str, JobState], *, unanswered: bool) -> tuple[State, str]:
    """Return state and detail of a cell; known: the states of jobs that Slurm knows."""
    if cell.done:
        return "done", ""
    job = known.get(cell.job, JobState("unknown"))
    last_line = last_log_line(cell.log)
    logged = f"; last log line: {last_line}" if last_line else ""
    if job.stage == "queued":
        return "queued", job.reason + logged
    if job.stage == "running":
        return "running", last_line
    if job.word == "CANCELLED":
        return "cancelled", "by a user or an administrator"
    error = saved_error(Path(cell.folder), cell.job)
    if error == "":  # it ended well without a new record: it found that of another run
        return "done", ""
    if error or cell.failure:
        return "failed", cell.failure or "; ".join(filter(None, (error, last_line)))
    if unanswered:
        return "queued", "or running or killed; the cluster does not answer"
    if job.stage == "unknown" and not cell.log.exists():  # Slurm drops such elements of an array
        return "cancelled", "before it began"
    return "failed", (job.word or "killed; the cluster does not say why") + logged


def render_all(states: States, no_answer: str = "") -> str:
    """Return the states as text: a line per cell, the logs of failed cells, and the counts."""
    lines = [render_states(states)]
    if no_answer:
        lines.append(f"the cluster does not answer: {no_answer}")
    if any_failed([one for one in states if one.cell.job]):
        lines.append(
            "run_all.py --retry-failed submits them again; each continues where it stopped"
        )
    return "\n".join(lines)


def collect(file: Path) -> int:
    """Return 0 once tables and report are written, however incomplete; 1 if one cannot be."""
    from benchmarks.report import update_report  # states need neither
    from benchmarks.tables import update_tables

    submission = read_submission(file)
    states, _ = states_of(submission.cells)
    for one in states:
        if one.state == "failed" and not one.cell.failure:
            why = {"reason": one.detail, "traceback": ""}
            write_failure(Path(one.cell.record), one.cell.described | why)
    print(render_all(states))
    results = Path(submission.results)
    contents = update_tables(results)
    is_reported = update_report(results, contents=contents)
    return int(contents is None or not is_reported)


if __name__ == "__main__":
    sys.exit(collect(Path(sys.argv[1])))
