"""Compare pairs of checkpoints: which one is significantly better, on which tasks?

Two checkpoints are compared on every task that both have under one protocol and on the same test
images, with any networks and any pre-training. `records.Comparison` is the rule.
"""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
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
from benchmarks.results.numbers import Number, main_numbers, shared_heading
from benchmarks.results.records import Backbone
from benchmarks.results.tables import row_label
from benchmarks.results.verdicts import pretraining_data
from benchmarks.words import count_tasks, grouped
from transfer.encoders.architectures import network_words
from transfer.record import SIGNED_METRICS

SHOWN = 0.05
"""Points below which a difference is shown as 0.0."""
MAX_PAIRED = 3
"""Maximum number of trained checkpoints for which all pairs get a sentence."""
Pair = tuple[int, int]
"""Sorted indices of two checkpoints."""


class Checkpoint(NamedTuple):
    """A row of the comparison."""

    name: str
    network: str
    parameters: int
    """Number of parameters; 0 if the records do not state it."""
    data: str
    """Pre-training set; empty if it is not known."""
    is_random: bool

    @property
    def description(self) -> str:
        """Return network, parameters and pre-training data, to show with the name."""
        count = f"{self.parameters / 1e6:.1f} M parameters" if self.parameters else ""
        data = "random weights" if self.is_random else self.data or "unknown pre-training data"
        return ", ".join(filter(None, [self.network, count, data]))


class Task(NamedTuple):
    """One protocol variant of a task, with all pairs of checkpoints compared."""

    key: str
    """Task and protocol variant."""
    metric: str
    conditions: str
    """Schedule and data."""
    family: str
    scores: Sequence[Score | None]
    """The number of each checkpoint; None if it has no result."""
    addresses: Sequence[str]
    differences: dict[Pair, Difference]
    """Difference of each pair of checkpoints."""
    tests: Sequence[str]
    """The test of each pair, as text."""
    sizes: Sequence[int]
    """Image size in px of each checkpoint; 0 if not set."""

    def content(self, significant: Collection[Pair], *, with_conditions: bool) -> dict[str, Any]:
        """Return the task as input of the report's script.

        significant: pairs that differ after Holm's correction over all tasks of the pair.
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
            "indices": [index for index, score in enumerate(self.scores) if score],
            # a value per pair of these indices, in order
            "half_intervals": [_rounded(pair.half_interval, 2) for pair in pairs],
            "smallest": [_rounded(pair.smallest, 2) for pair in pairs],
            "significant": [int(pair in significant) for pair in self.differences],
            "kinds": kinds,
            "tests": [kinds.index(test) for test in self.tests] if len(kinds) > 1 else [],
            "sizes": self.sizes if len({*filter(None, self.sizes)}) > 1 else [],
        }


def _rounded(value: float, digits: int) -> float | None:
    return round(value, digits) if math.isfinite(value) else None


@dataclass(frozen=True)
class Compared:
    """All checkpoints of a results folder with a common task."""

    checkpoints: Sequence[Checkpoint]
    references: Sequence[int]
    """Index of the checkpoint that each checkpoint is compared with in a sentence."""
    tasks: Sequence[Task]

    @property
    def are_trained(self) -> bool:
        """Return whether a trained checkpoint (one training run) is compared."""
        return any(not checkpoint.is_random for checkpoint in self.checkpoints)

    @property
    def conditions(self) -> str:
        """Return the schedule and data of all tasks, or an empty text."""
        headings = {task.conditions for task in self.tasks}
        return headings.pop() if len(headings) == 1 else ""

    @cached_property
    def significance(self) -> dict[Pair, dict[int, bool]]:
        """Significance of each pair after Holm's correction, by index of the task.

        Tasks without known errors are omitted.
        """
        significance = {}
        for pair in combinations(range(len(self.checkpoints)), 2):
            p_values = {
                index: task.differences[pair].p
                for index, task in enumerate(self.tasks)
                if pair in task.differences and math.isfinite(task.differences[pair].p)
            }
            significance[pair] = dict(zip(p_values, holm(p_values.values()), strict=True))
        return significance

    @cached_property
    def _num_common(self) -> Counter[Pair]:
        """Number of common tasks of each pair."""
        return Counter(pair for task in self.tasks for pair in task.differences)

    @property
    def pairs(self) -> list[Pair]:
        """Return the pairs of checkpoints that sentences compare.

        All pairs of trained checkpoints come first if these are few. Each checkpoint and its
        reference follow, those with the most common tasks first.
        """
        trained = [i for i, checkpoint in enumerate(self.checkpoints) if not checkpoint.is_random]
        pairs = list(combinations(trained, 2)) if len(trained) <= MAX_PAIRED else []
        pairs = [pair for pair in pairs if self._num_common[pair]]
        further = [
            (index, reference)
            for index, reference in enumerate(self.references)
            if index != reference and (reference, index) not in pairs
        ]
        return pairs + sorted(further, key=lambda pair: -self._num_common[_sorted(*pair)])

    @property
    def sentences(self) -> list[str]:
        """Return a sentence for each checkpoint with a reference."""
        return [self._sentence(index, reference) for index, reference in self.pairs]

    def _sentence(self, first: int, second: int) -> str:
        """Return on how many tasks a checkpoint is significantly better and worse.

        Empty if the two have no task in common.
        """
        pair = _sorted(first, second)
        if not (num_common := self._num_common[pair]):
            return ""
        significance = self.significance[pair]
        counts: Counter[str] = Counter()
        for index, is_significant in significance.items():
            diff = self.tasks[index].differences[pair]
            if is_significant:
                counts["better" if (diff.points > 0) == (first < second) else "worse"] += 1
            elif max(abs(diff.points), diff.half_interval) < SHOWN:
                counts["equal"] += 1
            else:
                counts["inconclusive"] += 1
        better, worse = counts["better"], counts["worse"]
        a, b = self.checkpoints[first], self.checkpoints[second]
        total = count_tasks([self.tasks[index].key for index in significance])
        is_twin = b.is_random and a.network == b.network and not a.is_random
        if is_twin and not better:
            text = f"{a.name} is not better than random weights: "
            text += f"significantly better on 0 of {total}, worse on {worse}"
        elif worse > better:
            text = f"{a.name} is significantly worse than {b.name} on {worse} of {total}, "
            text += f"better on {better}"
        elif better:
            text = f"{a.name} is significantly better than {b.name} on {better} of {total}, "
            text += f"worse on {worse}"
        else:
            text = f"{a.name} and {b.name} differ significantly on 0 of {total}"
        text += f", inconclusive on {counts['inconclusive']}"
        text += f", equal on {counts['equal']}" if counts["equal"] else ""
        if unknown := num_common - len(significance):
            text += f"; {unknown} without known errors"
        return "; ".join([text, *_differences(a, b)]) + "."

    @property
    def content(self) -> dict[str, Any]:
        """Return the comparison as the page's script reads it."""
        indices = range(len(self.checkpoints))
        return {
            "conditions": self.conditions,
            "names": [checkpoint.name for checkpoint in self.checkpoints],
            "descriptions": [checkpoint.description for checkpoint in self.checkpoints],
            "first_pair": self.pairs[0] if self.pairs else (0, 1),
            # sentence of row i compares checkpoint i with checkpoint j
            "sentences": [
                [self._sentence(i, j) if i != j else "" for j in indices] for i in indices
            ],
            "tasks": [
                task.content(
                    [pair for pair, by_task in self.significance.items() if by_task.get(index)],
                    with_conditions=not self.conditions,
                )
                for index, task in enumerate(self.tasks)
            ],
        }


def _sorted(first: int, second: int) -> Pair:
    return min(first, second), max(first, second)


def _differences(first: Checkpoint, second: Checkpoint) -> list[str]:
    """Return differences in network and pre-training data as text."""
    texts = []
    if first.network != second.network:
        texts.append(f"their networks differ ({first.network}; {second.network})")
    if first.data != second.data and not (first.is_random or second.is_random):
        data = [checkpoint.data or "unknown data" for checkpoint in (first, second)]
        texts.append(f"so do their pre-training data ({data[0]}; {data[1]})")
        if len(texts) == 1:
            texts = [f"their pre-training data differ ({data[0]}; {data[1]})"]
    return texts


def compared(numbers: Iterable[Number], address: Address) -> Compared | None:
    """Return the comparison of all checkpoints.

    None if no two checkpoints have a common task.
    """
    # a higher signed metric is not better
    numbers_shown = [
        number for number in main_numbers(numbers) if number.metric not in SIGNED_METRICS
    ]
    columns = grouped((number.runs[0].comparison, number) for number in numbers_shown)
    # a row has one number per column; a second one, with other input settings, would hide it
    by_row = [{n.row: n for n in reversed(column_numbers)} for column_numbers in columns.values()]
    columns_of_several = [column for column in by_row if len(column) > 1]
    firsts = {
        row: number
        for column in reversed(columns_of_several)
        for row, number in reversed(column.items())
    }
    rows = sorted(
        firsts.values(),
        key=lambda row: (row.backbone.is_random, row.backbone.identity, row.conditions),
    )
    if not rows:
        return None
    checkpoints = [
        Checkpoint(
            name=row_label(row, rows),
            network=_network(row.backbone),
            parameters=int(row.runs[0].record.backbone.get("num_parameters") or 0),
            data=pretraining_data(row.backbone, [other.backbone for other in rows]),
            is_random=row.backbone.is_random,
        )
        for row in rows
    ]
    tasks = [_task([column.get(row.row) for row in rows], address) for column in columns_of_several]
    return Compared(checkpoints, _references(checkpoints, tasks), tasks)


def _references(checkpoints: Sequence[Checkpoint], tasks: Sequence[Task]) -> list[int]:
    """Return the index of the reference of each checkpoint.

    It is random weights of the same network, or otherwise the first earlier checkpoint, with a
    common task. A checkpoint without a reference gets its own index.
    """
    common = {pair for task in tasks for pair in task.differences}
    references = []
    for index, checkpoint in enumerate(checkpoints):
        twins = [
            i
            for i, other in enumerate(checkpoints)
            if other.is_random and other.network == checkpoint.network
        ]
        candidates = [] if checkpoint.is_random else [*twins, *range(index)]
        comparable = (other for other in candidates if _sorted(index, other) in common)
        references.append(next(comparable, index))
    return references


def _network(backbone: Backbone) -> str:
    """Return the network as text, without timm's weight tag (".dino")."""
    arch = backbone.arch.partition(".")[0] if backbone.arch.startswith("timm:") else backbone.arch
    return network_words(arch, backbone.stem)


def _task(numbers: Sequence[Number | None], address: Address) -> Task:
    """Return the comparison of one column: the number of each checkpoint, if it has one."""
    present = [number for number in numbers if number]
    first = present[0]
    indices = [index for index, number in enumerate(numbers) if number]
    scores = with_errors([number.score for number in present if number.score])
    pairs = [*combinations(zip(indices, scores, strict=True), 2)]
    sizes = [n.runs[0].record.protocol["fields"].get("crop_px", 0) if n else 0 for n in numbers]
    return Task(
        key=first.runs[0].key,
        metric=first.metric,
        conditions=shared_heading(present),
        family=first.heading,
        scores=[number.score if number else None for number in numbers],
        addresses=[address(number.files) if number else "" for number in numbers],
        differences={(i, j): difference(one, two, first.task) for (i, one), (j, two) in pairs},
        tests=[how_compared(one, two, first.task) for (_, one), (_, two) in pairs],
        sizes=[int(size) for size in sizes],
    )
