"""Which runs may share a table, a row or a mean: all of our numbers as rows.

A block is a table of rows that may be compared with each other (`records.Comparison`). Numbers with
other reasons against a comparison with the papers (length, altered protocol, data) are in another
block. In a block, each column has one protocol, apart from what the networks' input sets, and one
state of the data; version 0 has the newest. Runs that must not share a mean are in different rows
of a backbone, and the further ones name their conditions.
"""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean
from typing import NamedTuple

from benchmarks.results.differences import Score, score_of
from benchmarks.results.published import AVERAGE, CORRUPTED, transfer_tasks
from benchmarks.results.records import (
    CURVE_SEPARATOR,
    SCHEDULES,
    SMALL_DATA,
    Conditions,
    Reasons,
    Run,
    grouped,
    schedule_words,
    tolerated_notes,
)
from transfer.outcomes import PER_IMAGE

ColumnKey = tuple[str, str]
"""Task id, and protocol without its version."""
RowKey = tuple[bool, str, str, str]
"""Whether the weights are untrained, name, hash of the weights, and conditions of a further row."""


class Number(NamedTuple):
    """Mean over runs that differ only in their seeds, or the text that a table shows instead."""

    run: Run
    """A run of the row, for the facts on its backbone."""
    reasons: Reasons
    version: int
    task: str
    reading: str
    primary_metric: str
    heading: str
    conditions: str = ""
    """Differing conditions of a further row of the backbone; empty for its first row."""
    metric: str = ""
    """Empty: the text in place of every metric that the runs lack."""
    score: Score | None = None
    text: str = ""
    notes: tuple[str, ...] = ()
    """Notes on how the number was computed."""
    failures: tuple[str, ...] = ()
    runs: tuple[Run, ...] = ()
    """The runs, sorted by seed; for a mean over tasks, those of all tasks."""

    @property
    def row(self) -> RowKey:
        """Return the row's identity and sort key: untrained backbones come last."""
        return self.run.is_untrained, *self.run.identity, self.conditions

    @property
    def column(self) -> ColumnKey:
        """Return task and protocol."""
        return self.task, self.reading

    @property
    def files(self) -> tuple[str, ...]:
        """Return the paths of the records behind it, in the results folder."""
        return tuple(run.file for run in self.runs)

    @property
    def comparable(self) -> bool:
        """Return whether it may be compared with the papers' numbers."""
        return not self.reasons.words and not self.version

    @property
    def label(self) -> str:
        """Return the backbone's label, with the conditions of a further row."""
        return f"{self.run.label} ({self.conditions})" if self.conditions else self.run.label


@dataclass(frozen=True, eq=False)
class Block:
    """Numbers that may be compared with each other."""

    reasons: Reasons
    version: int
    numbers: Sequence[Number]

    @property
    def comparable(self) -> bool:
        """Return whether the numbers may be compared with the papers'."""
        return not self.reasons.words and not self.version

    @property
    def heading(self) -> str:
        """Return the reasons as a heading."""
        text = ", ".join(self.reasons.words) or "paper schedule, full data"
        if self.version:
            text += f", other settings or data ({self.version})"
        return text[0].upper() + text[1:]

    @cached_property
    def rows(self) -> list[Number]:
        """Return one number of each row, in order."""
        firsts = {number.row: number for number in reversed(self.numbers)}
        return [firsts[row] for row in sorted(firsts)]

    @cached_property
    def columns(self) -> list[ColumnKey]:
        """Return the columns, sorted, without LORAC's average."""
        return sorted({one.column for one in self.numbers if one.task != AVERAGE})

    def protocols(self, columns: Iterable[ColumnKey]) -> str:
        """Return the protocols, with versions, of the results in these columns."""
        wanted = set(columns)
        runs = (run for one in self.numbers if one.column in wanted for run in one.runs)
        return ", ".join(sorted({run.protocol for run in runs}))

    @cached_property
    def _by_place(self) -> dict[tuple[RowKey, ColumnKey, str], Number]:
        return {(one.row, one.column, one.metric): one for one in self.numbers}

    def number(self, row: Number, column: ColumnKey, metric: str) -> Number:
        """Return the number of a row, column and metric, or the text that is shown instead."""
        if number := self._by_place.get((row.row, column, metric)):
            return number
        other = self._by_place.get((row.row, column, ""))
        if other is None:
            text = "" if row.conditions else "not run"
            return row._replace(score=None, text=text, notes=(), failures=(), runs=())
        if not other.runs:
            return other
        names = ", ".join(sorted(other.runs[0].metrics))
        reason = f"the record has {names}, not {metric}"
        return other._replace(text="–", failures=(reason,), runs=())


EMPTY = Block(Reasons(), 0, ())


def rank(reasons: Reasons, version: int) -> tuple[int, tuple[str, ...], int]:
    """Return the sort key of blocks: schedules in order, other lengths; newest version first."""
    lengths = ["", *map(schedule_words, SCHEDULES[1:])]
    known = lengths.index(reasons.length) if reasons.length in lengths else len(lengths)
    return known, reasons.words, version


def blocks(numbers: Iterable[Number]) -> list[Block]:
    """Return the blocks of numbers by schedule, the comparable one first."""
    groups = grouped(((one.reasons, one.version), one) for one in numbers)
    return [Block(*key, groups[key]) for key in sorted(groups, key=lambda key: rank(*key))]


def main_numbers(numbers: Iterable[Number]) -> list[Number]:
    """Return the results by the main metrics of their tasks, without averages."""
    scored = (one for one in numbers if one.score and one.runs and one.task != AVERAGE)
    return [one for one in scored if one.metric == one.primary_metric]


def shared_heading(numbers: Sequence[Number]) -> str:
    """Return what numbers that may be compared share, as a heading.

    A protocol that the input of some networks alone alters is not called altered.
    """
    reasons = numbers[0].reasons
    if not all(number.reasons.altered for number in numbers):
        reasons = reasons._replace(altered="")
    return Block(reasons, min(number.version for number in numbers), ()).heading


class Place(NamedTuple):
    """Block and row of a run."""

    reasons: Reasons
    version: int
    conditions: str
    backbone: tuple[str, str]
    """Name, and hash of the weights."""


def numbers_of(runs: Sequence[Run], *, by_pretraining: bool = False) -> list[Number]:
    """Return the mean of every group of runs, and the texts of cells without a number.

    by_pretraining: in naming the conditions, all snapshots of a pre-training run count as one
    backbone.
    """
    done = [run for run in runs if not run.failure]
    places = _places(done, by_pretraining=by_pretraining)
    rows = {places[run.file]: run for run in reversed(done)}
    cells = grouped(((places[run.file], run.task, run.reading), run) for run in done)
    known = {run.identity: run for run in reversed(done)}
    for failure, place in _places_of_failures(runs, places, set(cells)):
        rows.setdefault(place, known.get(place.backbone, failure))
        cells.setdefault((place, failure.task, failure.reading), []).append(failure)
    numbers: list[Number] = []
    for (place, task, reading), own in cells.items():
        facts = own[0].primary_metric, own[0].heading, place.conditions
        cell = Number(rows[place], place.reasons, place.version, task, reading, *facts)
        numbers += _numbers_of_cell(cell, own)
    return numbers + _averages(numbers)


def _places(done: Sequence[Run], *, by_pretraining: bool) -> dict[str, Place]:
    """Return the place of each run, by its file."""
    places: dict[str, Place] = {}
    columns = grouped(((run.reasons, run.task, run.reading), run) for run in done)
    for (reasons, _, _), column in columns.items():
        states = grouped((run.comparison, run) for run in column)
        newest_first = sorted(
            states, key=lambda state: (max(r.finished for r in states[state]), state), reverse=True
        )
        for version, state in enumerate(newest_first):
            backbones: dict[Hashable, list[Run]] = grouped(
                (run_name(r.backbone) if by_pretraining else r.identity, r) for r in states[state]
            )
            for own in backbones.values():
                names = _condition_names([run.conditions for run in own])
                for run in own:
                    name = names[run.conditions]
                    places[run.file] = Place(reasons, version, name, run.identity)
    return places


def run_name(backbone: str) -> str:
    """Return the name of the pre-training run to which a snapshot belongs."""
    return backbone.rpartition(CURVE_SEPARATOR)[0]


def _condition_names(conditions: Sequence[Conditions]) -> dict[Conditions, str]:
    """Return for each of the conditions how they differ from the most frequent ones.

    The most frequent ones (then those with the fewest deviations) have no name.
    """

    def order(one: Conditions) -> tuple[int, int, Conditions]:
        departures = 0 if one.departures == "no deviation" else 1 + one.departures.count("; ")
        return -conditions.count(one), departures, one

    first, *others = sorted(set(conditions), key=order)

    def differences(one: Conditions) -> str:
        return ", ".join(mine for mine, other in zip(one, first, strict=True) if mine != other)

    # deviations are long: a name contains them only if nothing else distinguishes the row
    short = [differences(one._replace(departures=first.departures)) for one in others]
    names = [
        name if name and short.count(name) == 1 else differences(one)
        for one, name in zip(others, short, strict=True)
    ]
    return dict(zip([first, *others], ["", *names], strict=True))


def _places_of_failures(
    runs: Iterable[Run], places: Mapping[str, Place], cells: set[tuple[Place, str, str]]
) -> Iterator[tuple[Run, Place]]:
    """Yield each failure with its place: where other seeds of it ran, or else other tasks.

    Without such a row of its backbone and length, the failure is in a row of its own.
    """
    rows = sorted(
        dict.fromkeys(places.values()),
        key=lambda place: (*rank(place.reasons, place.version), place.backbone, place.conditions),
    )
    failures = [run for run in runs if run.failure]
    for failure in sorted(failures, key=lambda f: (f.backbone, f.task, f.protocol, f.seed)):
        alone = Place(failure.reasons, 0, "", failure.identity)
        alike = [
            place
            for place in rows
            if place.backbone == failure.identity and place.reasons.length == alone.reasons.length
        ]
        of_seeds = [place for place in alike if (place, failure.task, failure.reading) in cells]
        yield failure, next(iter([*of_seeds, *alike, alone]))


def _numbers_of_cell(cell: Number, own: Sequence[Run]) -> list[Number]:
    """Return the number of each metric of a cell's runs, and the text for all other metrics."""
    done = tuple(sorted((run for run in own if not run.failure), key=lambda run: run.seed))
    failed = [run for run in own if run.failure]
    if not done:
        reasons = tuple(dict.fromkeys(f"failed: {run.failure}" for run in failed))
        return [cell._replace(text="failed", failures=reasons)]
    cell = cell._replace(runs=done)
    notes = (*run_notes(done), *done[0].departures)
    failures = tuple(f"seed {run.seed} failed: {run.failure}" for run in failed)
    return [cell] + [
        cell._replace(
            metric=metric, score=score_of_runs(done, metric), notes=notes, failures=failures
        )
        for metric in dict.fromkeys(metric for run in done for metric in run.metrics)
    ]


def score_of_runs(done: Sequence[Run], metric: str) -> Score:
    """Return the mean over runs, with the test images as their records describe them."""
    first = done[0]
    per_image = first.details.get(PER_IMAGE) or {}
    num_images = per_image.get("images") or first.details.get("num_test")
    # all corruptions of one photograph are right or wrong together
    is_counted = isinstance(num_images, int) and (per_image or first.task != CORRUPTED)
    trials = first.details.get("interval95", {}) if len(done) == 1 else {}
    return score_of(
        [run.metrics[metric] for run in done if metric in run.metrics],
        interval=trials.get(metric, 0.0),
        metric=metric,
        images=f"{first.task} {first.protocol_hash} {first.fingerprint}",
        is_primary=metric == first.primary_metric,
        details=tuple(run.details for run in done),
        num_images=num_images if is_counted else None,
    )


def _averages(numbers: Iterable[Number]) -> list[Number]:
    """Return LORAC's average of every row that has one of the twelve data sets."""
    tasks = transfer_tasks()
    members = [one for one in numbers if one.task in tasks]
    members = [m for m in members if not m.runs or m.metric == m.primary_metric]
    rows = grouped(((m.reasons, m.version, m.row, m.reading), m) for m in members)
    return [_average(own) for own in rows.values()]


def _average(own: Sequence[Number]) -> Number:
    """Return the unweighted mean of the twelve data sets, or the text that is shown instead."""
    tasks = transfer_tasks()
    average = own[0]._replace(task=AVERAGE, metric="mean", primary_metric="mean", score=None)
    average = average._replace(heading="Linear transfer", text="", notes=(), failures=(), runs=())
    scored = sorted((one for one in own if one.score), key=lambda one: tasks.index(one.task))
    if len(scored) < len(tasks):
        if average.conditions:
            return average
        return average._replace(text=f"– ({len(scored)} of {len(tasks)})" if scored else "not run")
    first_runs = [one.runs[0] for one in scored]
    kinds = zip(
        *((c.features, c.engine, c.processes, c.crops) for c in (r.conditions for r in first_runs)),
        strict=True,
    )
    if unlike := "; ".join(" and ".join(sorted(set(w))) for w in kinds if len(set(w)) > 1):
        reason = f"no average, because the runs differ: {unlike}"
        return average._replace(text="–", failures=(reason,))
    shared = [note for note in scored[0].notes if all(note in one.notes for one in scored)]
    of_some = [n for r in first_runs for n in (*tolerated_notes(r.tolerated), *r.departures)]
    return average._replace(
        score=mean_over_tasks(scored),
        notes=tuple(dict.fromkeys([*shared, *of_some])),
        runs=tuple(run for one in scored for run in one.runs),
    )


def run_notes(done: Sequence[Run]) -> list[str]:
    """Return notes on schedule, engine, seeds and data of runs that differ only in their seeds."""
    first = done[0]
    notes = [schedule_words(first.schedule), first.conditions.engine]
    if first.conditions.processes != "1 process":
        notes.append(first.conditions.processes)
    seeds = ", ".join(str(run.seed) for run in done)
    notes.append(f"seed {seeds}" if len(done) == 1 else f"{len(done)} runs, seeds {seeds}")
    if first.small:
        notes.append(SMALL_DATA[first.small])
    notes += tolerated_notes(first.tolerated)
    if crops := first.details.get("crops", ""):
        notes.append(f"training crops {crops}")
    if at_edge := [str(run.seed) for run in done if run.details.get("at_grid_edge")]:
        seeds = f" (seed {', '.join(at_edge)})" if len(done) > 1 else ""
        notes.append(f"chosen learning rate at the edge of the grid{seeds}")
    return notes


def mean_over_tasks(numbers: Sequence[Number]) -> Score:
    """Return the unweighted mean over tasks; its spread is over seeds, if all tasks have the same.

    numbers: those of one row, each with a score.
    """
    by_seed = [{run.seed: run.metrics[one.metric] for run in one.runs} for one in numbers]
    if all(values.keys() == by_seed[0].keys() for values in by_seed):
        score = score_of([fmean(v[seed] for v in by_seed) for seed in sorted(by_seed[0])])
    else:
        score = Score(mean=fmean(fmean(values.values()) for values in by_seed))
    return replace(score, members=tuple(one.score for one in numbers if one.score))
