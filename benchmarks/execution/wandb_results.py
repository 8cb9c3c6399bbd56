"""Result tables on Weights & Biases, for users who have wandb."""

import sys
from importlib.util import find_spec
from pathlib import Path

from benchmarks.pages.records import Result, read_results

INSTALL = "--wandb needs the package wandb, which is not installed: pip install wandb"
COLUMNS = ("backbone", "task", "metric", "value", "protocol", "schedule", "seed", "engine", "data")


def require_wandb() -> None:
    """Raise ValueError where wandb is not installed, before any work is done."""
    if find_spec("wandb") is None:
        raise ValueError(INSTALL)


def rows_of(result: Result) -> list[list[str | float]]:
    """Return a row per metric of a result, under COLUMNS."""
    return [
        [
            *(result.model.name, result.task, metric, value, result.protocol, result.schedule),
            *(result.seed, result.engine, result.small or "published"),
        ]
        for metric, value in sorted(result.metrics.items())
    ]


def log_results(project: str, results: Path) -> None:
    """Log all results of a folder as one table and one summary value each.

    A failure of wandb, such as no network, is told in a line: the records are on the disk.
    """
    import wandb

    rows = [row for result in read_results(results).done for row in rows_of(result)]
    try:
        run = wandb.init(
            project=project,
            name=results.absolute().parent.name,
            job_type="evaluation",
            dir=str(results.absolute()),
        )
        run.log({"results": wandb.Table(columns=list(COLUMNS), data=rows)})
        for backbone, task, metric, value, *_ in rows:
            run.summary[f"{backbone}/{task}/{metric}"] = value
        run.finish()
    except (wandb.Error, OSError) as error:
        print(f"results were not logged with wandb: {error}", file=sys.stderr, flush=True)
