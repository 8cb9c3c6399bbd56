"""Which checkpoint is better, on which tasks, and significantly so?

Any two checkpoints are compared on every task that both have under one protocol and on the same
test images, whatever their networks and their pre-training: `records.Comparison` is the rule.
"""

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
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
from benchmarks.results.numbers import Number, RowKey, main_numbers, shared_heading
from benchmarks.results.records import Run, count_tasks, grouped
from benchmarks.results.tables import row_label
from benchmarks.results.verdicts import pretraining_data
from transfer.encoders.architectures import network_words
from transfer.record import SIGNED_METRICS

SHOWN = 0.05
"""Points below which a difference is shown as 0.0."""


class Checkpoint(NamedTuple):
    """A row of the comparison."""

    name: str
    network: str
    parameters: int
    """0 if the records do not say how many."""
    data: str
    """Pre-training set; empty if it is not known."""
    is_random: bool

    @property
    def facts(self) -> str:
        """Return what stands beside the name: network, parameters, pre-training data."""
        count = f"{self.parameters / 1e6:.1f} M parameters" if self.parameters else ""
        data = "random weights" if self.is_random else self.data or "unknown pre-training data"
        return ", ".join(filter(None, [self.network, count, data]))


class Task(NamedTuple):
    """One task under one reading, with every pair of the checkpoints that have it compared."""

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
    sizes: Sequence[int]
    """Side in px of each checkpoint's images; 0 where the protocol does not set it."""

    def content(
        self, significant: Collection[tuple[int, int]], *, with_conditions: bool
    ) -> dict[str, Any]:
        """Return the task as the page's script reads it.

        significant: the pairs that differ, after Holm's correction over all tasks of the pair.
        """
        conditions = self.conditions if with_conditions else ""
        if conditions[1:2].islower():  # not "JPEG-coded data"
            conditions = conditions[0].lower() + conditions[1:]
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
            "smallest": [_rounded(pair.smallest, 2) for pair in pairs],
            "significant": [int(pair in significant) for pair in self.differences],
            "kinds": kinds,
            "tests": [kinds.index(test) for test in self.tests] if len(kinds) > 1 else [],
            "sizes": self.sizes if len({*filter(None, self.sizes)}) > 1 else [],
        }


def _rounded(value: float, digits: int) -> float | None:
    return round(value, digits) if math.isfinite(value) else None


class Compared(NamedTuple):
    """All checkpoints of a results folder that share a task with another one."""

    checkpoints: Sequence[Checkpoint]
    references: Sequence[int]
    """For each checkpoint, the one that its sentence compares it with: random weights of its
    network if there are, else the first with a common task."""
    tasks: Sequence[Task]

    @property
    def names(self) -> list[str]:
        """Return the names of the checkpoints."""
        return [one.name for one in self.checkpoints]

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Return each checkpoint and its reference, those with the most common tasks first."""
        pairs = [(one, other) for one, other in enumerate(self.references) if one != other]
        return sorted(pairs, key=lambda pair: -self._num_common(*pair))

    @property
    def sentences(self) -> list[str]:
        """Return a sentence for each checkpoint with a reference."""
        return [self._sentence(one, other) for one, other in self.pairs]

    def _num_common(self, first: int, second: int) -> int:
        """Return the number of tasks that two checkpoints have in common."""
        pair = min(first, second), max(first, second)
        return sum(pair in task.differences for task in self.tasks)

    @property
    def are_trained(self) -> bool:
        """Return whether trained checkpoints are compared, each of which is one training run."""
        return any(not one.is_random for one in self.checkpoints)

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
        if not (num_common := self._num_common(first, second)):
            return ""
        judged = self._judged(pair)
        differences = {index: self.tasks[index].differences[pair] for index in judged}
        sure = [differences[index] for index, is_sure in judged.items() if is_sure]
        leads = [(one.points > 0) == (first < second) for one in sure]
        better, worse = leads.count(True), leads.count(False)
        unsure = [differences[index] for index, is_sure in judged.items() if not is_sure]
        equal = sum(max(abs(d.points), d.half_interval) < SHOWN for d in unsure)
        one, other = self.checkpoints[first], self.checkpoints[second]
        total = count_tasks([self.tasks[index].key for index in judged])
        is_twin = other.is_random and one.network == other.network and not one.is_random
        if is_twin and not better:
            text = f"{one.name} is not better than random weights: "
            text += f"significantly better on 0 of {total}, worse on {worse}"
        elif worse > better:
            text = f"{one.name} is significantly worse than {other.name} on {worse} of {total}, "
            text += f"better on {better}"
        elif better:
            text = f"{one.name} is significantly better than {other.name} on {better} of {total}, "
            text += f"worse on {worse}"
        else:
            text = (
                f"{one.name} and {other.name} differ significantly on {better + worse} of {total}"
            )
        text += f", inconclusive on {len(unsure) - equal}"
        text += f", equal on {equal}" if equal else ""
        if unknown := num_common - len(judged):
            text += f"; {unknown} without known errors"
        return "; ".join([text, *_unlike(one, other)]) + "."

    @property
    def conditions(self) -> str:
        """Return schedule and data if all tasks share them, else an empty text."""
        headings = {task.conditions for task in self.tasks}
        return headings.pop() if len(headings) == 1 else ""

    @property
    def content(self) -> dict[str, Any]:
        """Return the comparison as the page's script reads it."""
        indices = range(len(self.checkpoints))
        judged = {pair: self._judged(pair) for pair in combinations(indices, 2)}
        return {
            "conditions": self.conditions,
            "names": self.names,
            "facts": [one.facts for one in self.checkpoints],
            "first_pair": self.pairs[0] if self.pairs else (0, 1),
            # of the first checkpoint beside the second
            "sentences": [
                [self._sentence(i, j) if i != j else "" for j in indices] for i in indices
            ],
            "tasks": [
                task.content(
                    [pair for pair, own in judged.items() if own.get(index)],
                    with_conditions=not self.conditions,
                )
                for index, task in enumerate(self.tasks)
            ],
        }


def _unlike(one: Checkpoint, other: Checkpoint) -> list[str]:
    """Return in which of network and pre-training data two checkpoints differ, in words."""
    words = []
    if one.network != other.network:
        words.append(f"their networks differ ({one.network}; {other.network})")
    if one.data != other.data and not (one.is_random or other.is_random):
        data = [checkpoint.data or "unknown data" for checkpoint in (one, other)]
        words.append(f"so do their pre-training data ({data[0]}; {data[1]})")
        if len(words) == 1:
            words = [f"their pre-training data differ ({data[0]}; {data[1]})"]
    return words


def compared(numbers: Iterable[Number], address: Address) -> Compared | None:
    """Return the comparison of all checkpoints; None without two that have a task in common."""
    # of signed metrics, more is not better
    shown = [one for one in main_numbers(numbers) if one.metric not in SIGNED_METRICS]
    columns = grouped((one.runs[0].comparison, one) for one in shown)
    # a row of a column has one number; a second one, of other input settings, would hide it
    places = [{one.row: one for one in reversed(own)} for own in columns.values()]
    places = [column for column in places if len(column) > 1]
    firsts = {row: one for column in reversed(places) for row, one in reversed(column.items())}
    rows = sorted(
        firsts.values(), key=lambda row: (row.run.is_random, row.run.identity, row.conditions)
    )
    if not rows:
        return None
    checkpoints = [
        Checkpoint(
            name=row_label(row, rows),
            network=_network(row.run),
            parameters=int(row.runs[0].record.backbone.get("num_parameters") or 0),
            data=pretraining_data(row.run, [one.run for one in rows]),
            is_random=row.run.is_random,
        )
        for row in rows
    ]
    tasks = [_task(column, [row.row for row in rows], address) for column in places]
    return Compared(checkpoints, _references(checkpoints, tasks), tasks)


def _references(checkpoints: Sequence[Checkpoint], tasks: Sequence[Task]) -> list[int]:
    """Return the checkpoint that each one is compared with.

    Random weights of its network if there are, else the first one before it; only one with which it
    shares a task. A checkpoint without any is compared with itself: not at all.
    """
    random = [index for index, one in enumerate(checkpoints) if one.is_random]
    references = []
    for index, one in enumerate(checkpoints):
        twins = [other for other in random if checkpoints[other].network == one.network]
        asked = [index] if one.is_random else [*twins, *range(index), index]
        pairs = [(min(index, other), max(index, other)) for other in asked]
        shared = (any(pair in task.differences for task in tasks) for pair in pairs)
        references.append(next((o for o, has in zip(asked, shared, strict=True) if has), index))
    return references


def _network(run: Run) -> str:
    """Return the network in words; for timm's without the tag of the weights, such as ".dino"."""
    is_timm = run.arch.startswith("timm:")
    return network_words(run.arch.partition(".")[0] if is_timm else run.arch, run.stem)


def _task(column: Mapping[RowKey, Number], rows: Sequence[RowKey], address: Address) -> Task:
    numbers = [column.get(row) for row in rows]
    indices = [index for index, number in enumerate(numbers) if number]
    own = [number for number in numbers if number]
    first = own[0]
    scores = with_errors([number.score for number in own if number.score])
    known = dict(zip(indices, scores, strict=True))
    pairs = [*combinations(known, 2)]
    return Task(
        key=first.runs[0].key,
        metric=first.metric,
        conditions=shared_heading(own),
        family=first.heading,
        scores=[number.score if number else None for number in numbers],
        addresses=[address(number.files) if number else "" for number in numbers],
        differences={(i, j): difference(known[i], known[j], first.task) for i, j in pairs},
        tests=[how_compared(known[i], known[j], first.task) for i, j in pairs],
        sizes=[_input_px(number) if number else 0 for number in numbers],
    )


def _input_px(number: Number) -> int:
    return int(number.runs[0].record.protocol["fields"].get("crop_px", 0))
