"""Description of a submission to a cluster: one JSON file for each, below the runs."""

import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.execution.states import StartedCell, start_of, with_tuples
from pretrain.running.atomic_files import explain_write_errors
from slurm.resources import Queue, Resources
from slurm.state import log_path
from transfer.cells.request import Cell
from transfer.record import write_failure, write_json
from transfer.tasks import reading_of, task_of

FILE = "submission.json"
FORMAT = "ssl-submission/1"


@dataclass(frozen=True, kw_only=True)
class SubmittedCell(StartedCell):
    """A submitted cell, with all that is needed to follow it and to submit it again."""

    job: str
    protocol: str
    schedule: str
    words: tuple[str, ...]
    """Arguments of benchmarks.execution.one_cell."""
    resources: Resources
    folder: str = ""
    """Folder of its submission."""

    @property
    def log(self) -> Path:
        """Return the path of its messages."""
        return log_path(Path(self.folder), self.job)

    def note_failure(self, reason: str) -> None:
        """Write the failure file of a cell that was killed before it could do so."""
        write_failure(
            Path(self.record),
            {
                "backbone": self.backbone,
                "task": reading_of(self.key)[0],
                "protocol": self.protocol,
                "schedule": self.schedule,
                "seed": self.seed,
                "primary_metric": task_of(self.key).primary_metric,
                "heading": task_of(self.key).heading,
                "reason": reason,
                "traceback": "",
            },
        )


@dataclass(frozen=True, kw_only=True)
class Submission:
    """Arrays that were submitted together."""

    folder: Path
    """Folder of this file, logs and pickles."""
    results: str
    parallel: int
    queue: Queue
    cells: tuple[SubmittedCell, ...]
    helpers: tuple[str, ...]
    """Jobs that extract features for several cells, and last the job that writes the tables."""
    tables_partition: str = ""
    """Partition of the job that writes the tables; the queue's if empty."""
    submitted: str = field(
        default_factory=lambda: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    )

    def save(self) -> Path:
        """Write the submission file whole or not at all; return its path."""
        content = asdict(self) | {"format": FORMAT}
        del content["folder"]
        write_json(self.folder / FILE, content, "--runs")
        return self.folder / FILE


def submitted_cell(cell: Cell, words: tuple[str, ...], resources: Resources) -> SubmittedCell:
    """Return the description of a cell that has no job yet."""
    return SubmittedCell(
        **start_of(cell),
        job="",
        protocol=cell.task.protocol,
        schedule=cell.settings.schedule,
        words=words,
        resources=resources,
    )


def new_folder(runs: Path) -> Path:
    """Create an empty folder for a submission, named after the time; return its path."""
    stamp = time.strftime("%Y%m%d-%H%M%S")
    for number in range(1000):
        folder = (runs / "slurm" / f"{stamp}{f'-{number}' * bool(number)}").absolute()
        with explain_write_errors(folder, "--runs"):
            try:
                folder.mkdir(parents=True)
            except FileExistsError:
                continue
        return folder
    raise OSError(f"{runs}/slurm/{stamp}: this folder and {stamp}-1 to {stamp}-999 exist already")


def read_submission(path: Path) -> Submission:
    """Read a submission file; ValueError if it is not one."""
    try:
        content: dict[str, Any] = json.loads(path.read_text(), object_hook=with_tuples)
        found = content.pop("format")
        if found != FORMAT:
            raise ValueError(f"format {found!r}, expected {FORMAT!r}")
        own = {"folder": str(path.parent)}
        cells = tuple(
            SubmittedCell(**cell | own | {"resources": Resources(**cell["resources"])})
            for cell in content.pop("cells")
        )
        queue = content.pop("queue")
        if "exclude" in queue:  # the name of --exclude-nodes in submissions of November 2026
            queue["exclude_nodes"] = queue.pop("exclude")
        return Submission(folder=path.parent, cells=cells, queue=Queue(**queue), **content)
    except (KeyError, TypeError, ValueError) as error:
        raise ValueError(f"{path}: not a submission ({error})") from error


def submissions(runs: Path) -> Iterator[Submission]:
    """Yield all submissions below the runs, oldest first."""
    for path in sorted((runs / "slurm").glob(f"*/{FILE}")):
        yield read_submission(path)
