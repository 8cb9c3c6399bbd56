"""Every number of ours: one row per record and metric, for the page's list and results.csv."""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.pages.against import compared_everywhere
from benchmarks.pages.blocks import reasons_of
from benchmarks.pages.records import SMALL_DATA, Result, Results
from pretrain.running.atomic_files import write_whole

FILE = "results.csv"


@dataclass(frozen=True, kw_only=True)
class Number:
    """One metric of one record; the fields are the columns of results.csv."""

    backbone: str
    task: str
    protocol: str
    schedule: str
    seed: int
    engine: str
    metric: str
    value: float
    primary: bool
    """The metric represents the task where one number is shown."""
    data: str
    """Words "full data", "excerpt of the data" or "generated data"."""
    departures: str
    comparable: bool
    """The number was computed under the paper's protocol, at its length, on full data."""
    verdict: str
    """Verdicts on the published counterparts of its seeds' mean; empty if there are none."""
    record: str
    """Path of the record below the results."""

    @property
    def finite(self) -> bool:
        """Return whether the value is a number that can be sorted and compared."""
        return math.isfinite(self.value)


def numbers_of(results: Results) -> list[Number]:
    """Return one row per record and metric, in the order of the records' paths."""
    verdicts = verdicts_of(results.done)
    return [
        Number(
            backbone=result.model.label,
            task=result.task,
            protocol=result.protocol,
            schedule=result.schedule,
            seed=result.seed,
            engine=result.engine,
            metric=metric,
            value=value,
            primary=metric == result.primary_metric,
            data=SMALL_DATA.get(result.small, "full data"),
            departures="; ".join(result.departures),
            comparable=not reasons_of(result).words(),
            verdict="; ".join(verdicts.get((result.file, metric), ())),
            record=result.file,
        )
        for result in results.done
        for metric, value in result.metrics.items()
    ]


def verdicts_of(done: Sequence[Result]) -> dict[tuple[str, str], list[str]]:
    """Return the verdicts, such as "pass (LORAC, Table II)", by record and metric."""
    verdicts: dict[tuple[str, str], dict[str, None]] = {}
    for paper, table, pair in compared_everywhere(done):
        for file in pair.files if pair.judged else ():
            named = verdicts.setdefault((file, pair.column.metric), {})
            named[f"{pair.verdict} ({paper.name}, {table.number})"] = None
    return {key: list(named) for key, named in verdicts.items()}


def write_csv(folder: Path, results: Results) -> Path:
    """Write results.csv into the results folder; return its path. WriteError if that fails."""
    import pandas as pd

    columns = list(Number.__dataclass_fields__)
    frame = pd.DataFrame([asdict(number) for number in numbers_of(results)], columns=columns)
    write_whole(folder / FILE, frame.to_csv(index=False).encode(), "--results")
    return folder / FILE
