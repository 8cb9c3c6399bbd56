"""Entries of a table: mean, standard deviation and number of runs, or why there is no number."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev

from benchmarks.pages.blocks import (
    Block,
    Column,
    conditions,
    processes_words,
    schedule_words,
    tolerated_words,
)
from benchmarks.pages.published import AVERAGE, transfer_tasks
from benchmarks.pages.records import SMALL_DATA, Model, Result

NOT_A_NUMBER = "not a number"
"""Text of a metric that is not finite, such as the loss of a network that diverged."""


@dataclass(frozen=True, kw_only=True)
class Score:
    """Mean over seeds, in percent, and its spread."""

    mean: float
    std: float = 0.0
    """Sample standard deviation; 0 for a single run."""
    runs: int = 1
    interval: float = 0.0
    """Half width of the 95 % interval over the trials of a single run; 0 without trials."""

    @property
    def finite(self) -> bool:
        """Return whether the mean is a number that can be compared."""
        return math.isfinite(self.mean)

    def text(self, decimals: int) -> str:
        """Return "71.2", or "71.2 ± 0.3" for several runs or trials."""
        if not self.finite:
            return NOT_A_NUMBER
        spread = self.std if self.runs > 1 else self.interval
        suffix = f" ± {spread:.{decimals}f}" if self.runs > 1 or spread else ""
        return f"{self.mean:.{decimals}f}{suffix}"


@dataclass(frozen=True, kw_only=True)
class TableEntry:
    """One entry of a row of ours."""

    score: Score | None = None
    missing: str = "not run"
    """Text that is shown if there is no score."""
    notes: tuple[str, ...] = ()
    """Notes on how the number was computed."""
    failures: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    """Paths of the records behind the score, below the results."""


def score_of(values: Sequence[float]) -> Score:
    """Return mean and standard deviation of one or more values."""
    mean = fmean(values)
    spread = stdev(values) if len(values) > 1 and math.isfinite(mean) else 0.0
    return Score(mean=mean, std=spread, runs=len(values))


def table_entry(block: Block, model: Model, column: Column, metric: str) -> TableEntry:
    """Return the entry of a model for a metric of a column, which may be LORAC's average."""
    if column[0] == AVERAGE:
        return _average_entry(block, model, column[1])
    done = block.done.get((model, column), ())
    failed = block.failed.get((model, column), ())
    values = [result.metrics[metric] for result in done if metric in result.metrics]
    if values:
        broken = tuple(f"seed {f.seed} failed: {f.reason}" for f in failed)
        score = score_of(values)
        if len(done) == 1:
            score = replace(score, interval=done[0].interval95.get(metric, 0.0))
        files = tuple(result.file for result in done)
        return TableEntry(score=score, notes=_notes(done), failures=broken, files=files)
    if failed:
        reasons = tuple(dict.fromkeys(f"failed: {failure.reason}" for failure in failed))
        return TableEntry(missing="failed", failures=reasons)
    if done:
        names = ", ".join(sorted(done[0].metrics))
        return TableEntry(missing="–", failures=(f"the record has {names}, not {metric}",))
    return TableEntry(missing="") if model.other_conditions else TableEntry()


def _average_entry(block: Block, model: Model, protocol: str) -> TableEntry:
    """Return LORAC's average, the unweighted mean of the twelve data sets, if all are there."""
    done = [block.done.get((model, (task, protocol)), ()) for task in transfer_tasks()]
    # each record's only metric, by seed
    members = [{r.seed: next(iter(r.metrics.values())) for r in runs} for runs in done if runs]
    if len(members) < len(done):
        if model.other_conditions:
            return TableEntry(missing="")
        return TableEntry(missing=f"– ({len(members)} of {len(done)})" if members else "not run")
    if differences := _differences(done):
        why = f"no average, because the runs differ: {differences}"
        return TableEntry(missing="–", failures=(why,))
    shared = [
        note for note in _notes(done[0]) if all(note in _notes(results) for results in done[1:])
    ]
    of_some = [note for r in done for note in (*tolerated_words(r[0]), *r[0].departures)]
    # with the same seeds everywhere, the spread is that of the average, one per seed
    if all(member.keys() == members[0].keys() for member in members):
        score = score_of([fmean(m[seed] for m in members) for seed in sorted(members[0])])
    else:
        score = Score(mean=fmean(fmean(member.values()) for member in members))
    return TableEntry(
        score=score,
        notes=tuple(dict.fromkeys([*shared, *of_some])),
        files=tuple(result.file for results in done for result in results),
    )


def _differences(done: list[tuple[Result, ...]]) -> str:
    """Return the arithmetic, engines, numbers of processes or crops in which results differ."""
    of_each = [conditions(results[0]) for results in done]
    each = zip(*((c.features, c.engine, c.processes, c.crops) for c in of_each), strict=True)
    return "; ".join(" and ".join(sorted(set(words))) for words in each if len(set(words)) > 1)


def _notes(done: tuple[Result, ...]) -> tuple[str, ...]:
    """Return notes on schedule, engine, seeds, data and departures of a number, each once.

    They are taken from the first run, because runs of one mean differ only in their seeds.
    """
    first = done[0]
    notes = [schedule_words(first.schedule), f"engine {first.engine}"]
    notes += [processes_words(first)] * (first.num_processes > 1)
    seeds = ", ".join(str(result.seed) for result in done)
    notes.append(f"seed {seeds}" if len(done) == 1 else f"{len(done)} runs, seeds {seeds}")
    notes += [SMALL_DATA[first.small]] if first.small else []
    notes += tolerated_words(first)
    if version := first.details.get("crops", ""):
        notes.append(f"training crops {version}")
    if at_edge := [str(result.seed) for result in done if result.at_grid_edge]:
        of = f" (seed {', '.join(at_edge)})" if len(done) > 1 else ""
        notes.append(f"chosen learning rate at the edge of the grid{of}")
    return (*notes, *first.departures)
