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
from benchmarks.pages.differences import Sample, Score
from benchmarks.pages.published import AVERAGE, CORRUPTED, transfer_tasks
from benchmarks.pages.records import SMALL_DATA, Model, Result
from transfer.outcomes import PER_IMAGE


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One number of a table, ours or a paper's, from the records to the page."""

    score: Score | None = None
    text: str = "not run"
    """Printed number, or text that is shown if there is no score."""
    after: str = ""
    """Footnote marks."""
    notes: tuple[str, ...] = ()
    """Notes on how the number was computed."""
    failures: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    """Paths of the records behind the score, below the results."""
    best: bool = False
    """It leads its column, among the lines of its scope, surely."""

    @property
    def sort(self) -> str:
        """Return the number to sort by; empty for what is no number."""
        return f"{self.score.mean}" if self.score else ""


def score_of(values: Sequence[float]) -> Score:
    """Return mean and standard deviation of one or more values."""
    mean = fmean(values)
    spread = stdev(values) if len(values) > 1 and math.isfinite(mean) else 0.0
    return Score(mean=mean, std=spread, runs=len(values))


def table_entry(block: Block, model: Model, column: Column, metric: str) -> Entry:
    """Return the entry of a model for a metric of a column, which may be LORAC's average."""
    if column[0] == AVERAGE:
        return _average_entry(block, model, column[1])
    done = block.done.get((model, column), ())
    failed = block.failed.get((model, column), ())
    values = [result.metrics[metric] for result in done if metric in result.metrics]
    if values:
        broken = tuple(f"seed {f.seed} failed: {f.reason}" for f in failed)
        score = replace(score_of(values), sample=sample_of(done, metric))
        if len(done) == 1:
            trials = done[0].details.get("interval95", {})
            score = replace(score, interval=trials.get(metric, 0.0))
        files = tuple(result.file for result in done)
        return Entry(score=score, notes=_notes(done), failures=broken, files=files)
    if failed:
        reasons = tuple(dict.fromkeys(f"failed: {failure.reason}" for failure in failed))
        return Entry(text="failed", failures=reasons)
    if done:
        names = ", ".join(sorted(done[0].metrics))
        return Entry(text="–", failures=(f"the record has {names}, not {metric}",))
    return Entry(text="") if model.other_conditions else Entry()


def sample_of(done: Sequence[Result], metric: str) -> Sample:
    """Return what the records of one number hold of its test images."""
    first = done[0]
    told = first.details.get(PER_IMAGE) or {}
    number = told.get("images") or first.details.get("num_test")
    return Sample(
        metric,
        images=f"{first.task} {first.protocol_hash} {first.fingerprint}",
        is_primary=metric == first.primary_metric,
        details=tuple(result.details for result in done),
        # the corruptions of one photograph are right together
        num_images=number
        if isinstance(number, int) and (told or first.task != CORRUPTED)
        else None,
    )


def _average_entry(block: Block, model: Model, protocol: str) -> Entry:
    """Return LORAC's average, the unweighted mean of the twelve data sets, if all are there."""
    done = [block.done.get((model, (task, protocol)), ()) for task in transfer_tasks()]
    # each record's only metric, by seed
    members = [{r.seed: next(iter(r.metrics.values())) for r in runs} for runs in done if runs]
    scores = tuple(
        replace(score_of([*own.values()]), sample=sample_of(runs, runs[0].primary_metric))
        for own, runs in zip(members, filter(None, done), strict=True)
    )
    if len(members) < len(done):
        if model.other_conditions:
            return Entry(text="")
        return Entry(text=f"– ({len(members)} of {len(done)})" if members else "not run")
    if differences := _differences(done):
        why = f"no average, because the runs differ: {differences}"
        return Entry(text="–", failures=(why,))
    shared = [
        note for note in _notes(done[0]) if all(note in _notes(results) for results in done[1:])
    ]
    of_some = [note for r in done for note in (*tolerated_words(r[0]), *r[0].departures)]
    # with the same seeds everywhere, the spread is that of the average, one per seed
    if all(member.keys() == members[0].keys() for member in members):
        score = score_of([fmean(m[seed] for m in members) for seed in sorted(members[0])])
    else:
        score = Score(mean=fmean(fmean(member.values()) for member in members))
    return Entry(
        score=replace(score, members=scores),
        notes=tuple(dict.fromkeys([*shared, *of_some])),
        files=tuple(result.file for results in done for result in results),
    )


def _differences(done: list[tuple[Result, ...]]) -> str:
    """Return the arithmetic, engines, numbers of processes or crops in which results differ."""
    of_each = [conditions(results[0]) for results in done]
    each = zip(*((c.features, c.engine, c.processes, c.crops) for c in of_each), strict=True)
    return "; ".join(" and ".join(sorted(set(words))) for words in each if len(set(words)) > 1)


def _notes(done: tuple[Result, ...]) -> tuple[str, ...]:
    """Return the notes of a number with its departures, which its runs share."""
    return (*run_notes(done), *done[0].departures)


def run_notes(done: Sequence[Result]) -> list[str]:
    """Return notes on schedule, engine, seeds and data of runs that differ in their seeds only."""
    first = done[0]
    notes = [schedule_words(first.schedule), f"engine {first.engine}"]
    processes = processes_words(first)
    notes += [processes] if processes != "1 process" else []
    seeds = ", ".join(str(result.seed) for result in done)
    notes.append(f"seed {seeds}" if len(done) == 1 else f"{len(done)} runs, seeds {seeds}")
    notes += [SMALL_DATA[first.small]] if first.small else []
    notes += tolerated_words(first)
    if version := first.details.get("crops", ""):
        notes.append(f"training crops {version}")
    if at_edge := [str(result.seed) for result in done if result.details.get("at_grid_edge")]:
        of = f" (seed {', '.join(at_edge)})" if len(done) > 1 else ""
        notes.append(f"chosen learning rate at the edge of the grid{of}")
    return notes
