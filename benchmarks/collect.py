"""The last job of a submission: reasons of cells that could leave none, then the tables.

python -m benchmarks.collect runs/slurm/WHEN/submission.json
"""

import sys
from pathlib import Path

from benchmarks.status import render, status_of
from benchmarks.submission import read
from benchmarks.tables import write_tables


def collect(file: Path) -> int:
    """Exit status: 0 once the tables are made, whatever is missing in them."""
    submission = read(file)
    found = status_of(submission)
    for status in found:
        if status.state == "failed" and not status.cell.failure:
            status.cell.note_failure(status.detail)
    print(render(found, ""))
    results = Path(submission.results)
    results.mkdir(parents=True, exist_ok=True)
    for path in write_tables(results):
        print(f"table  {path}")
    return 0


if __name__ == "__main__":
    sys.exit(collect(Path(sys.argv[1])))
