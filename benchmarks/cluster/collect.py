"""The last job of a submission: it notes the failures of killed cells, writes tables and report.

python -m benchmarks.cluster.collect runs/slurm/WHEN/submission.json
"""

import sys
from pathlib import Path

from benchmarks.cluster.cell_status import render_submitted, states_of
from benchmarks.cluster.submission import read_submission
from benchmarks.report import update_report
from benchmarks.tables import update_tables


def collect(file: Path) -> int:
    """Return 0 once tables and report are written, however incomplete; 1 if one cannot be."""
    submission = read_submission(file)
    states, _ = states_of(submission.cells)
    for one in states:
        if one.state == "failed" and not one.cell.failure:
            one.cell.note_failure(one.detail)
    print(render_submitted(states, ""))
    results = Path(submission.results)
    return int(not all([update_tables(results), update_report(results)]))


if __name__ == "__main__":
    sys.exit(collect(Path(sys.argv[1])))
