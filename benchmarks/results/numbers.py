"""Average runs over seeds, and group the averages into tables of comparable results.

A `Number` is the mean of one metric over the seeds of an evaluation, or the text shown without a
result. Its column is the task and the protocol (without its version; a task may have several
protocols). Its row is the backbone. Runs that must not be averaged, such as those of different
engines, are in different rows, and further rows name their conditions.

A `Block` is one table: numbers that may be compared with each other (`records.Comparison`). Numbers
with different reasons against a comparison with the papers (length, altered protocol, data, newer
results of the column) are in different blocks. In a block, each column has one protocol, apart from
settings that follow from the network's input, and one state of the data.
"""

from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean
from typing import NamedTuple

from benchmarks.results.differences import Score, score_of
from benchmarks.results.published import AVERAGE, CORRUPTED, transfer_tasks
from benchmarks.results.records import (
    CURVE_SEPARATOR,
    SMALL_DATA,
    Backbone,
    Comparison,
    Conditions,
    Identity,
    Reasons,
    Run,
    schedule_words,
)
from benchmarks.words import grouped, tolerated_notes
from transfer.outcomes import PER_IMAGE

ColumnKey = tuple[str, str]
"""Task id, and protocol without its version."""
RowKey = tuple[bool, str, str, str]
"""Untrained flag, name, weights hash, conditions of a further row."""


class Number(NamedTuple):
    """One table entry: a mean over seeds, or the text shown if there is no score."""

    backbone: Backbone
    reasons: Reasons
    """Reasons why the number is not comparable with published ones."""
    task: str
    protocol_name: str
    """Protocol without its version."""
    primary_metric: str
    heading: str
    conditions: str = ""
    """Conditions of a further row; empty for the first row."""
    metric: str = ""
    """Name of the metric; empty for the entry shown for missing metrics."""
    score: Score | None = None
    text: str = ""
    notes: tuple[str, ...] = ()
    """Notes on how the number was computed."""
    failures: tuple[str, ...] = ()
    runs: tuple[Run, ...] = ()
    """The runs sorted by seed; for a mean over tasks, all runs."""

    @property
    def row(self) -> RowKey:
        """Return the row's identity and sort key: untrained backbones come last."""
        return self.backbone.is_untrained, *self.backbone.identity, self.conditions

    @property
    def column(self) -> ColumnKey:
        """Return task and protocol."""
        return self.task, self.protocol_name

    @property
    def files(self) -> tuple[str, ...]:
        """Return the paths of the records behind it, in the results folder."""
        return tuple(run.file for run in self.runs)

    @property
    def label(self) -> str:
        """Return the backbone's label, with the conditions of a further row."""
        label = self.backbone.label
        return f"{label} ({self.conditions})" if self.conditions else label


@dataclass(frozen=True, eq=False)
class Block:
    """One table: numbers that may be compared with each other."""

    reasons: Reasons
    numbers: Sequence[Number]

    @cached_property
    def rows(self) -> list[Number]:
        """Return one number of each row, in order."""
        firsts = {number.row: number for number in reversed(self.numbers)}
        return [firsts[row] for row in sorted(firsts)]

    @cached_property
    def columns(self) -> list[ColumnKey]:
        """Return the columns, sorted, without LORAC's average."""
        return sorted({number.column for number in self.numbers if number.task != AVERAGE})

    def protocols(self, columns: Iterable[ColumnKey]) -> str:
        """Return the protocols, with versions, of the results in these columns."""
        selected = set(columns)
        runs = (run for number in self.numbers if number.column in selected for run in number.runs)
        return ", ".join(sorted({run.protocol for run in runs}))

    @cached_property
    def _number_by_key(self) -> dict[tuple[RowKey, ColumnKey, str], Number]:
        return {(number.row, number.column, number.metric): number for number in self.numbers}

    def number(self, row: Number, column: ColumnKey, metric: str) -> Number:
        """Return the number of a row, column and metric, or a text."""
        if number := self._number_by_key.get((row.row, column, metric)):
            return number
        fallback = self._number_by_key.get((row.row, column, ""))
        if fallback is None:
            text = "" if row.conditions else "not run"
            return row._replace(score=None, text=text, notes=(), failures=(), runs=())
        if not fallback.runs:
            return fallback
        names = ", ".join(sorted(fallback.runs[0].metrics))
        reason = f"the record has {names}, not {metric}"
        return fallback._replace(text="–", failures=(reason,), runs=())


EMPTY = Block(Reasons(), ())


def one_per_backbone(numbers: Iterable[Number]) -> list[Number]:
    """Return one number of each backbone, without conditions, untrained backbones last."""
    by_identity = {n.backbone.identity: n._replace(conditions="") for n in reversed([*numbers])}
    return sorted(by_identity.values(), key=lambda number: number.row)


def blocks(numbers: Iterable[Number]) -> list[Block]:
    """Return the blocks of numbers by schedule, the comparable one first."""
    groups = grouped((number.reasons, number) for number in numbers)
    in_order = sorted(groups, key=lambda reasons: reasons.sort_key)
    return [Block(reasons, groups[reasons]) for reasons in in_order]


def main_numbers(numbers: Iterable[Number]) -> list[Number]:
    """Return the results by the main metrics of their tasks, without averages."""
    return [
        number
        for number in numbers
        if number.score and number.task != AVERAGE and number.metric == number.primary_metric
    ]


def by_comparison(numbers: Iterable[Number]) -> dict[Comparison, dict[Identity, Number]]:
    """Return one number of each backbone by comparison, the paper's schedule first.

    If a backbone has numbers under several conditions, the most frequent conditions are taken.
    """
    groups: dict[Comparison, dict[Identity, Number]] = {}
    for number in sorted(numbers, key=lambda n: (n.reasons.sort_key, n.conditions)):
        group = groups.setdefault(number.runs[0].comparison, {})
        group.setdefault(number.backbone.identity, number)
    return groups


def shared_heading(numbers: Sequence[Number]) -> str:
    """Return a common heading for comparable numbers.

    It says "altered" only if the protocol of every number is altered.
    """
    reasons = numbers[0].reasons
    if not all(number.reasons.altered for number in numbers):
        reasons = reasons._replace(altered="")
    return reasons._replace(version=min(number.reasons.version for number in numbers)).heading


class BlockRow(NamedTuple):
    """Identity of a row of a block."""

    reasons: Reasons
    backbone: Identity
    conditions: str


def numbers_of(runs: Sequence[Run], *, by_pretraining: bool = False) -> list[Number]:
    """Return a number per metric and group of runs, or one with the failure text.

    A failure is in the row in which other seeds of the evaluation succeeded, otherwise in the first
    row of the same backbone and length, otherwise in a new row.

    by_pretraining: name the conditions as if all snapshots of a pre-training run were one backbone.
    """
    succeeded = [run for run in runs if not run.failure]
    failed = [run for run in runs if run.failure]
    row_of = _rows_by_file(succeeded, by_pretraining=by_pretraining)
    cells = grouped(((row_of[run.file], run.task, run.protocol_name), run) for run in succeeded)
    backbones = {row_of[run.file]: run.backbone for run in reversed(succeeded)}
    by_identity = {run.backbone.identity: run.backbone for run in reversed(succeeded)}
    in_order = sorted(backbones, key=lambda row: (row.reasons.sort_key, *row[1:]))
    for failure in sorted(failed, key=lambda f: f.cell):
        identity = failure.backbone.identity
        rows = [
            row
            for row in in_order
            if row.backbone == identity and row.reasons.length == failure.reasons.length
        ]
        cell = failure.task, failure.protocol_name
        new_row = BlockRow(failure.reasons, identity, "")
        row = min(rows, key=lambda row: (row, *cell) not in cells, default=new_row)
        backbones.setdefault(row, by_identity.get(identity, failure.backbone))
        cells.setdefault((row, *cell), []).append(failure)
    numbers: list[Number] = []
    for (row, task, protocol_name), cell_runs in cells.items():
        template = Number(
            backbone=backbones[row],
            reasons=row.reasons,
            task=task,
            protocol_name=protocol_name,
            primary_metric=cell_runs[0].primary_metric,
            heading=cell_runs[0].heading,
            conditions=row.conditions,
        )
        numbers += _numbers_of_cell(template, cell_runs)
    return numbers + _averages(numbers)


def _rows_by_file(succeeded: Sequence[Run], *, by_pretraining: bool) -> dict[str, BlockRow]:
    """Return the row of each run, by its file."""
    rows: dict[str, BlockRow] = {}
    columns = grouped(((run.reasons, run.task, run.protocol_name), run) for run in succeeded)
    for (reasons, _, _), column in columns.items():
        states = grouped((run.comparison, run) for run in column)
        newest_first = sorted(
            states,
            key=lambda state: (max(run.record.finished for run in states[state]), state),
            reverse=True,
        )
        for version, state in enumerate(newest_first):
            backbones: dict[Hashable, list[Run]] = grouped(
                (run_name(run.backbone.name) if by_pretraining else run.backbone.identity, run)
                for run in states[state]
            )
            for backbone_runs in backbones.values():
                names = _condition_names([run.conditions for run in backbone_runs])
                for run in backbone_runs:
                    identity, conditions = run.backbone.identity, names[run.conditions]
                    row = BlockRow(reasons._replace(version=version), identity, conditions)
                    rows[run.file] = row
    return rows


def run_name(backbone: str) -> str:
    """Return the pre-training run of a snapshot."""
    return backbone.rpartition(CURVE_SEPARATOR)[0]


def _condition_names(conditions: Sequence[Conditions]) -> dict[Conditions, str]:
    """Name conditions by their differences from the most frequent ones.

    The most frequent conditions (then those with the fewest deviations) have no name.
    """

    def sort_key(candidate: Conditions) -> tuple[int, int, Conditions]:
        num_deviations = (
            0 if candidate.departures == "no deviation" else 1 + candidate.departures.count("; ")
        )
        return -conditions.count(candidate), num_deviations, candidate

    first, *further = sorted(set(conditions), key=sort_key)

    def differences(candidate: Conditions) -> str:
        return ", ".join(
            value for value, common in zip(candidate, first, strict=True) if value != common
        )

    # deviations are long: a name contains them only if nothing else distinguishes the row
    short = [differences(candidate._replace(departures=first.departures)) for candidate in further]
    names = [
        name if name and short.count(name) == 1 else differences(candidate)
        for candidate, name in zip(further, short, strict=True)
    ]
    return dict(zip([first, *further], ["", *names], strict=True))


def _numbers_of_cell(cell: Number, runs: Sequence[Run]) -> list[Number]:
    """Return a number per metric, and a text for missing metrics."""
    succeeded = tuple(sorted((run for run in runs if not run.failure), key=lambda run: run.seed))
    failed = [run for run in runs if run.failure]
    if not succeeded:
        reasons = tuple(dict.fromkeys(f"failed: {run.failure}" for run in failed))
        return [cell._replace(text="failed", failures=reasons)]
    cell = cell._replace(runs=succeeded)
    notes = (*run_notes(succeeded), *succeeded[0].record.departures)
    failures = tuple(f"seed {run.seed} failed: {run.failure}" for run in failed)
    return [cell] + [
        cell._replace(
            metric=metric, score=score_of_runs(succeeded, metric), notes=notes, failures=failures
        )
        for metric in dict.fromkeys(metric for run in succeeded for metric in run.metrics)
    ]


def score_of_runs(runs: Sequence[Run], metric: str) -> Score:
    """Return the mean over runs, with the test images from their records."""
    first = runs[0]
    per_image = first.details.get(PER_IMAGE) or {}
    num_images = per_image.get("images") or first.details.get("num_test")
    # predictions for the corruptions of an image are correlated, so num_test is no sample size
    is_counted = isinstance(num_images, int) and (per_image or first.task != CORRUPTED)
    trials = first.details.get("interval95", {}) if len(runs) == 1 else {}
    return score_of(
        [run.metrics[metric] for run in runs if metric in run.metrics],
        interval=trials.get(metric, 0.0),
        metric=metric,
        # networks with other input sizes are tested on the same images
        images=f"{first.task} {first.comparison.fields} {first.fingerprint}",
        is_primary=metric == first.primary_metric,
        details=tuple(run.details for run in runs),
        num_images=num_images if is_counted else None,
    )


def _averages(numbers: Iterable[Number]) -> list[Number]:
    """Return LORAC's average of each row with linear transfer results."""
    tasks = transfer_tasks()
    members = [number for number in numbers if number.task in tasks]
    members = [m for m in members if not m.runs or m.metric == m.primary_metric]
    rows = grouped(((m.reasons, m.row, m.protocol_name), m) for m in members)
    return [_average(row_members) for row_members in rows.values()]


def _average(members: Sequence[Number]) -> Number:
    """Return the mean of the twelve datasets, or a text."""
    tasks = transfer_tasks()
    average = members[0]._replace(task=AVERAGE, metric="mean", primary_metric="mean", score=None)
    average = average._replace(heading="Linear transfer", text="", notes=(), failures=(), runs=())
    scored = sorted((m for m in members if m.score), key=lambda member: tasks.index(member.task))
    if len(scored) < len(tasks):
        if average.conditions:
            return average
        return average._replace(text=f"– ({len(scored)} of {len(tasks)})" if scored else "not run")
    first_runs = [number.runs[0] for number in scored]
    unlike_data = {"data": "", "tolerated": "", "departures": ""}
    conditions = zip(*(run.conditions._replace(**unlike_data) for run in first_runs), strict=True)
    differing = [" and ".join(sorted(set(t))) for t in conditions if len(set(t)) > 1]
    if differing:
        reason = f"no average, because the runs differ: {'; '.join(differing)}"
        return average._replace(text="–", failures=(reason,))
    shared = common_notes(number.notes for number in scored)
    row_notes = [
        note
        for run in first_runs
        for note in (*tolerated_notes(run.tolerated), *run.record.departures)
    ]
    return average._replace(
        score=mean_over_tasks(scored),
        notes=tuple(dict.fromkeys([*shared, *row_notes])),
        runs=tuple(run for number in scored for run in number.runs),
    )


def common_notes(notes: Iterable[Sequence[str]]) -> list[str]:
    """Return the notes that all lists contain, in order."""
    first, *others = [*notes] or [()]
    return [note for note in first if all(note in other for other in others)]


def run_notes(runs: Sequence[Run]) -> list[str]:
    """Return notes on schedule, engine, seeds and data.

    The runs may differ only in their seeds.
    """
    first = runs[0]
    notes = [schedule_words(first.schedule), first.conditions.engine]
    if first.conditions.processes != "1 process":
        notes.append(first.conditions.processes)
    seeds = ", ".join(str(run.seed) for run in runs)
    notes.append(f"seed {seeds}" if len(runs) == 1 else f"{len(runs)} runs, seeds {seeds}")
    if first.small:
        notes.append(SMALL_DATA[first.small])
    notes += tolerated_notes(first.tolerated)
    if crops := first.details.get("crops", ""):
        notes.append(f"training crops {crops}")
    if at_edge := [str(run.seed) for run in runs if run.details.get("at_grid_edge")]:
        seeds = f" (seed {', '.join(at_edge)})" if len(runs) > 1 else ""
        notes.append(f"chosen learning rate at the edge of the grid{seeds}")
    return notes


def mean_over_tasks(numbers: Sequence[Number]) -> Score:
    """Return the unweighted mean over tasks.

    numbers: numbers of one row, each with a score. The standard deviation is over seeds, if all
    tasks have the same seeds.
    """
    by_seed = [{run.seed: run.metrics[number.metric] for run in number.runs} for number in numbers]
    if all(values.keys() == by_seed[0].keys() for values in by_seed):
        score = score_of([fmean(v[seed] for v in by_seed) for seed in sorted(by_seed[0])])
    else:
        score = Score(mean=fmean(fmean(values.values()) for values in by_seed))
    members = tuple(replace(n.score, task=n.task) for n in numbers if n.score)
    return replace(score, members=members)
