"""Which checkpoint is better, on which tasks, and significantly so?"""

import math
import re
from collections.abc import Collection, Iterable, Sequence
from itertools import combinations
from typing import Any, NamedTuple

from benchmarks.report_parts.document import Address
from benchmarks.results.differences import (
    Difference,
    Score,
    difference,
    holm,
    how_compared,
    with_errors,
)
from benchmarks.results.numbers import Block, ColumnKey, Number, blocks
from benchmarks.results.published import AVERAGE
from benchmarks.results.records import Run, grouped, plural
from benchmarks.results.tables import row_label
from benchmarks.results.verdicts import TRAIN_IMAGES, trained_on
from transfer.encoders.architectures import network_words
from transfer.record import SIGNED_METRICS


class Task(NamedTuple):
    """One task of a group, with every pair of its checkpoints compared."""

    key: str
    """Task and reading."""
    metric: str
    conditions: str
    """Schedule and data."""
    family: str
    scores: Sequence[Score | None]
    """Number of each checkpoint."""
    addresses: Sequence[str]
    differences: dict[tuple[int, int], Difference]
    """Difference of each two checkpoints with a number, by their indices in order."""
    tests: Sequence[str]
    """The test of each pair, in words."""

    def content(
        self, significant: Collection[tuple[int, int]], *, with_conditions: bool
    ) -> dict[str, Any]:
        """Return the task as the page's script reads it.

        significant: the pairs that differ, after Holm's correction over all tasks of the pair.
        """
        conditions = self.conditions.lower() if with_conditions else ""
        pairs, kinds = self.differences.values(), list(dict.fromkeys(self.tests))
        return {
            "key": self.key,
            "metric": ", ".join(filter(None, [self.metric, conditions])),
            "family": self.family,
            "values": [_rounded(s.mean, 4) if s else None for s in self.scores],
            "texts": [s.text(1) if s else "" for s in self.scores],
            "addresses": self.addresses,
            "places": [index for index, score in enumerate(self.scores) if score],
            # of each pair of these places, in order
            "reaches": [_rounded(pair.half_interval, 2) for pair in pairs],
            "sure": [int(pair in significant) for pair in self.differences],
            "kinds": kinds,
            "tests": [kinds.index(test) for test in self.tests] if len(kinds) > 1 else [],
        }


def _rounded(value: float, digits: int) -> float | None:
    return round(value, digits) if math.isfinite(value) else None


class Group(NamedTuple):
    """Checkpoints that may be compared: one network and one pre-training set, on equal tasks."""

    conditions: str
    """Network, pre-training data, and schedule and data if all tasks share them."""
    names: Sequence[str]
    reference: int
    """Index of the checkpoint with which the sentences compare: random weights, if there are."""
    tasks: Sequence[Task]

    @property
    def sentences(self) -> list[str]:
        """Return a sentence for each checkpoint except the reference."""
        others = (index for index in range(len(self.names)) if index != self.reference)
        return [*filter(None, (self._sentence(index, self.reference) for index in others))]

    def _judged(self, pair: tuple[int, int]) -> dict[int, bool]:
        """Return which tasks with known errors a pair differs on, after Holm, by their indices."""
        p_values = {
            index: task.differences[pair].p
            for index, task in enumerate(self.tasks)
            if pair in task.differences and math.isfinite(task.differences[pair].p)
        }
        return dict(zip(p_values, holm(p_values.values()), strict=True))

    def _sentence(self, first: int, second: int) -> str:
        """Return on how many tasks a checkpoint is significantly better and worse.

        Empty if the two have no task in common.
        """
        pair = min(first, second), max(first, second)
        num_common = sum(pair in task.differences for task in self.tasks)
        if not num_common:
            return ""
        judged = self._judged(pair)
        sure = (self.tasks[index].differences[pair] for index, is_sure in judged.items() if is_sure)
        leads = [(one.points > 0) == (first < second) for one in sure]
        better, worse = leads.count(True), leads.count(False)
        one, other = self.names[first], self.names[second]
        total = plural(len(judged), "task")
        if worse > better:
            text = f"{one} is surely worse than {other} on {worse} of {total}, better on {better}"
        elif better:
            text = f"{one} is surely better than {other} on {better} of {total}, worse on {worse}"
        else:
            text = f"{one} and {other} differ surely on {better + worse} of {total}"
        text += f", undecided on {len(judged) - better - worse}"
        if unknown := num_common - len(judged):
            text += f"; {unknown} without known errors"
        return f"{text}."

    @property
    def num_results(self) -> int:
        """Return the number of results of all tasks."""
        return sum(score is not None for task in self.tasks for score in task.scores)

    @property
    def content(self) -> dict[str, Any]:
        """Return the group as the page's script reads it."""
        several = len({task.conditions for task in self.tasks}) > 1
        indices = range(len(self.names))
        judged = {pair: self._judged(pair) for pair in combinations(indices, 2)}
        return {
            "conditions": self.conditions,
            "names": self.names,
            "reference": self.reference,
            # of the first checkpoint beside the second
            "sentences": [
                [self._sentence(i, j) if i != j else "" for j in indices] for i in indices
            ],
            "tasks": [
                task.content(
                    [pair for pair, own in judged.items() if own.get(index)],
                    with_conditions=several,
                )
                for index, task in enumerate(self.tasks)
            ],
        }


def comparisons(numbers: Iterable[Number], address: Address) -> list[Group]:
    """Return the groups with at least two checkpoints, those with the most results first."""
    all_blocks = blocks(number for number in numbers if number.runs and number.task != AVERAGE)
    firsts = {row.row: row for block in reversed(all_blocks) for row in block.rows}
    rows = sorted(
        firsts.values(), key=lambda row: (row.run.is_random, row.run.identity, row.conditions)
    )
    groups = (_group(all_blocks, own, address) for own in _comparable(rows))
    return sorted(filter(None, groups), key=lambda group: -group.num_results)


def _comparable(rows: Sequence[Number]) -> list[list[Number]]:
    """Return the rows of one network and pre-training set, each with the random networks.

    A row whose pre-training set is not known joins every set of its network.
    """
    groups = []
    for own in grouped((_network(row.run), row) for row in rows).values():
        data = dict.fromkeys(_data(row.run) for row in own if not row.run.is_random)
        for name in list(filter(None, data)) or data:
            groups.append([r for r in own if r.run.is_random or _data(r.run) in (name, "")])
    return groups


def _network(run: Run) -> str:
    """Return the network in words; for timm's without the tag of the weights, such as ".dino"."""
    is_timm = run.arch.startswith("timm:")
    return network_words(run.arch.partition(".")[0] if is_timm else run.arch, run.stem)


def _data(run: Run) -> str:
    """Return the pre-training set by the papers' name, or in the file's words; empty if unknown."""
    return next((name for name in TRAIN_IMAGES if trained_on(name, run)), run.data)


def _group(all_blocks: Sequence[Block], rows: Sequence[Number], address: Address) -> Group | None:
    """Return the comparison of the rows; None without two that have a task in common.

    The numbers of one task are those of one column, which has one protocol and one state of data.
    """
    columns = ((block, column) for block in all_blocks for column in block.columns)
    tasks = [task for place in columns if (task := _task(*place, rows, address))]
    kept = [row for index, row in enumerate(rows) if any(t.scores[index] for t in tasks)]
    if len(kept) < len(rows):
        return _group(all_blocks, kept, address) if kept else None
    data = {_data(row.run) for row in rows if not row.run.is_random}
    words = [_network(rows[0].run)]
    if any(data):
        names = [re.sub(r", fingerprint \w+", "", name) for name in sorted(data, reverse=True)]
        words.append(f"pre-trained on {' or '.join(name or 'unknown data' for name in names)}")
    headings = list(dict.fromkeys(task.conditions for task in tasks))
    words += headings if len(headings) == 1 else []
    reference = next((index for index, row in enumerate(rows) if row.run.is_random), 0)
    return Group("; ".join(words), [row_label(row, rows) for row in rows], reference, tasks)


def _task(block: Block, column: ColumnKey, rows: Sequence[Number], address: Address) -> Task | None:
    first = next(number for number in block.numbers if number.column == column)
    metric = first.primary_metric
    if metric in SIGNED_METRICS:  # not a quality: more is not better
        return None
    numbers = [block.number(row, column, metric) for row in rows]
    indices = [index for index, number in enumerate(numbers) if number.score]
    if len(indices) < 2:
        return None
    scores = with_errors([number.score for number in numbers if number.score])
    known = dict(zip(indices, scores, strict=True))
    pairs = [*combinations(known, 2)]
    return Task(
        key=first.runs[0].key,
        metric=metric,
        conditions=block.heading,
        family=first.heading,
        scores=[number.score for number in numbers],
        addresses=[address(number.files) if number.score else "" for number in numbers],
        differences={(i, j): difference(known[i], known[j], column[0]) for i, j in pairs},
        tests=[how_compared(known[i], known[j], column[0]) for i, j in pairs],
    )
