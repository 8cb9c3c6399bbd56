"""Description of a submission to a cluster: one JSON file for each, below the runs."""

import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.execution.states import StartedCell
from pretrain.running.atomic_files import explain_write_errors
from slurm.resources import Queue
from transfer.record import read_json, write_json

FILE = "submission.json"
FORMAT = "ssl-submission/2"


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
    content = read_json(path) or {}
    if content.pop("format", "") != FORMAT:
        raise ValueError(f"{path}: not a submission (expected format {FORMAT!r})")
    cells = tuple(map(StartedCell.stored, content.pop("cells")))
    queue = Queue(**content.pop("queue"))
    return Submission(folder=path.parent, queue=queue, cells=cells, **content)


def submissions(runs: Path, results: Path | None = None) -> Iterator[Submission]:
    """Yield the submissions below the runs, oldest first, all or those of a folder of results."""
    folder = None if results is None else str(results.absolute())
    for path in sorted((runs / "slurm").glob(f"*/{FILE}")):
        submission = read_submission(path)
        if folder in (None, submission.results):
            yield submission
