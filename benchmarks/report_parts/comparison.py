"""Which checkpoint is better, where, and surely? How far are our numbers from the papers'?"""

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

from benchmarks.pages.against import TRAIN_IMAGES, Pair, compared_everywhere, trained_on
from benchmarks.pages.blocks import Block, Column, sort_into_blocks
from benchmarks.pages.differences import (
    SIGNS,
    Score,
    compare,
    holm,
    how_compared,
    quantiles,
)
from benchmarks.pages.entries import table_entry
from benchmarks.pages.published import result_tables
from benchmarks.pages.records import Model, grouped
from benchmarks.pages.table_rows import row_label
from benchmarks.report_parts.contents import Contents, Details
from transfer.convert.architectures import network_words
from transfer.record import SIGNED_METRICS

MOST_SENTENCES = 6
"""Sentences of a group that are shown at once; the others are folded."""


@dataclass(frozen=True, kw_only=True)
class Task:
    """One task of a group, with every pair of its checkpoints compared."""

    key: str
    """Task and reading."""
    metric: str
    conditions: str
    """Schedule and data; empty if all tasks of the group share them."""
    family: str
    scores: tuple[Score | None, ...]
    """Number of each checkpoint."""
    addresses: tuple[str, ...]
    reaches: Any
    """Half the 95 % interval of the difference of each two checkpoints with a number, (k, k); NaN
    if it is not known."""
    p: Any
    """Probability of so large a difference, (k, k); NaN if it is not known."""
    column: str
    """Name of the task that its deviation from run to run is known by."""

    @property
    def places(self) -> list[int]:
        """Return the checkpoints with a number."""
        return [place for place, score in enumerate(self.scores) if score]

    def chance(self, first: int, second: int) -> float:
        """Return the probability of the difference of two checkpoints with numbers."""
        return float(self.p[self.places.index(first), self.places.index(second)])

    @property
    def content(self) -> dict[str, Any]:
        """Return the task as the page's script reads it."""
        pairs = [*combinations(range(len(self.places)), 2)]
        known = [score for score in self.scores if score]
        tests = [how_compared(known[i], known[j], self.column) for i, j in pairs]
        kinds = [*dict.fromkeys(tests)]
        return {
            "key": self.key,
            "metric": ", ".join(filter(None, [self.metric, self.conditions.lower()])),
            "family": self.family,
            "values": [_rounded(s.mean, 4) if s else None for s in self.scores],
            "texts": [s.text(1) if s else "" for s in self.scores],
            "addresses": self.addresses,
            "places": self.places,
            # of each pair of these places, in order
            "reaches": [_rounded(float(self.reaches[pair]), 2) for pair in pairs],
            "chances": [float(f"{p:.6g}") if p <= 1 else 1 for p in (self.p[i] for i in pairs)],
            "kinds": kinds,
            "tests": [kinds.index(test) for test in tests] if len(kinds) > 1 else [],
        }


def _rounded(value: float, digits: int) -> float | None:
    return round(value, digits) if math.isfinite(value) else None


@dataclass(frozen=True, kw_only=True)
class Group:
    """Checkpoints that may be compared: one network and one pre-training set, on equal tasks."""

    conditions: str
    """Schedule, data and network."""
    names: tuple[str, ...]
    reference: int
    """The checkpoint that the sentences are about: random weights, if they were evaluated."""
    tasks: tuple[Task, ...]

    @property
    def sentences(self) -> list[str]:
        """Return a sentence for each checkpoint beside the reference."""
        others = [place for place in range(len(self.names)) if place != self.reference]
        told = (self.sentence(place, self.reference) for place in others)
        return [sentence for sentence in told if sentence]

    def sentence(self, first: int, second: int) -> str:
        """Return on how many tasks a checkpoint is surely better and worse, after Holm.

        Empty where the two have no task in common.
        """
        both = [task for task in self.tasks if task.scores[first] and task.scores[second]]
        if not both:
            return ""
        judged = [task for task in both if math.isfinite(task.chance(first, second))]
        sure = holm([task.chance(first, second) for task in judged])
        leads = [_mean(task, first) > _mean(task, second) for task in judged]
        better = sum(lead and known for lead, known in zip(leads, sure, strict=True))
        worse = sum(known and not lead for lead, known in zip(leads, sure, strict=True))
        one, other = self.names[first], self.names[second]
        total = f"{len(judged)} task{'s' * (len(judged) != 1)}"
        if worse > better:
            words = f"{one} is surely worse than {other} on {worse} of {total}, better on {better}"
        elif better:
            words = f"{one} is surely better than {other} on {better} of {total}, worse on {worse}"
        else:
            words = f"{one} and {other} differ surely on {better + worse} of {total}"
        words += f", undecided on {len(judged) - better - worse}"
        unknown = len(both) - len(judged)
        return words + (f"; {unknown} without known errors." if unknown else ".")

    @property
    def num_results(self) -> int:
        """Return the number of results of all its tasks."""
        return sum(score is not None for task in self.tasks for score in task.scores)

    @property
    def content(self) -> dict[str, Any]:
        """Return the group as the page's script reads it."""
        return {
            "conditions": self.conditions,
            "names": self.names,
            "reference": self.reference,
            "tasks": [task.content for task in self.tasks],
        }


def _mean(task: Task, place: int) -> float:
    score = task.scores[place]
    return score.mean if score else math.nan


def comparisons(contents: Contents, details: Details) -> list[Group]:
    """Return the groups with at least two checkpoints, those with the most results first."""
    blocks = sort_into_blocks(contents.results.done)
    models = sorted({model for block in blocks for model in block.models})
    models.sort(key=_is_random)
    found = (_group(blocks, own, details) for own in _alike(models))
    return sorted(filter(None, found), key=lambda group: -group.num_results)


def _alike(models: Sequence[Model]) -> list[list[Model]]:
    """Return the models of one network and pre-training set, each with the random networks.

    A model whose pre-training set is not known joins every set of its network.
    """
    groups = []
    for own in grouped((_network(model), model) for model in models).values():
        sets = dict.fromkeys(_data(model) for model in own if not _is_random(model))
        for data in list(filter(None, sets)) or sets:
            groups.append([m for m in own if _is_random(m) or _data(m) in (data, "")])
    return groups


def _network(model: Model) -> str:
    """Return the network's words; of timm's without the tag of the weights, such as ".dino"."""
    is_timm = model.arch.startswith("timm:")
    return network_words(model.arch.partition(".")[0] if is_timm else model.arch, model.stem)


def _data(model: Model) -> str:
    """Return the pre-training set as the papers name it, else in the file's words, else empty."""
    return next((name for name in TRAIN_IMAGES if trained_on(name, model)), model.data)


def _is_random(model: Model) -> bool:
    return model.untrained or model.method == "random"


def _group(blocks: Sequence[Block], models: Sequence[Model], details: Details) -> Group | None:
    """Return the comparison of the models; None without two that have a task in common.

    The numbers of one task are those of one column, which has one protocol and one state of data.
    """
    tasks = {
        (block.heading, column): task
        for block in blocks
        for column in block.columns
        if (task := _task(block, column, models, details))
    }
    kept = [place for place in range(len(models)) if any(t.scores[place] for t in tasks.values())]
    if len(kept) < len(models):
        return _group(blocks, [models[place] for place in kept], details) if kept else None
    data = dict.fromkeys(_data(model) for model in models if not _is_random(model))
    random = [place for place, model in enumerate(models) if _is_random(model)]
    headings = {heading for heading, _ in tasks}
    names = [
        re.sub(r", fingerprint \w+", "", name) or "unknown data"
        for name in sorted(data, reverse=True)
    ]
    words = [_network(models[0])]
    words += [f"pre-trained on {' or '.join(names)}"] if any(data) else []
    if len(headings) == 1:
        words += headings
        tasks = {key: replace(task, conditions="") for key, task in tasks.items()}
    return Group(
        conditions="; ".join(words),
        names=tuple(row_label(model, models) for model in models),
        reference=random[0] if random else 0,
        tasks=tuple(tasks.values()),
    )


def _task(block: Block, column: Column, models: Sequence[Model], details: Details) -> Task | None:
    metric, heading = block.metric_and_heading(column)
    if metric in SIGNED_METRICS:  # no quality: more is not better
        return None
    entries = [table_entry(block, model, column, metric) for model in models]
    scores = tuple(entry.score for entry in entries)
    known = [score for score in scores if score]
    if len(known) < 2:
        return None
    _, errors, p, freedom = compare(known, column[0])
    return Task(
        key=next(done[0].key for (_, other), done in block.done.items() if other == column),
        metric=metric,
        conditions=block.heading,
        family=heading,
        scores=scores,
        addresses=tuple(details.of_files(entry.files) for entry in entries),
        reaches=errors * quantiles(freedom),
        p=p,
        column=column[0],
    )


MEANINGS = {
    "reproduced": "0 lies in the interval, which reaches no further than 1 point",
    "undecided": "0 lies in the interval, which is wider",
    "above": "the interval lies above 0",
    "below": "the interval lies below 0",
    "not judged": "cited, of unclear origin or without errors, see the paper's table",
}
WIDEST = 10.0
"""Largest difference that the axis shows, in points; what lies beyond is drawn at its end."""


@dataclass(frozen=True, kw_only=True)
class BesidePapers:
    """Differences by task, each with its place in the paper, and the axis that they share."""

    by_task: Mapping[str, Sequence[tuple[str, Pair]]]
    half_axis: int
    """Points from the axis's middle to its end."""
    counts: Mapping[str, int]
    """Number of differences by word, in the order of SIGNS."""

    def place(self, points: float) -> float:
        """Return the place of a difference on the axis, in percent of its width."""
        inside = max(-self.half_axis, min(self.half_axis, points))
        return round(50 + 50 * inside / self.half_axis, 3)


def beside_papers(contents: Contents) -> BesidePapers:
    """Return every number that we and a paper have, in the order of the papers' tables."""
    tables = [table for _, table in result_tables()]
    tasks = (r.task or column.task for t in tables for r in t.rows for column in t.columns)
    by_task: dict[str, list[tuple[str, Pair]]] = {task: [] for task in tasks}
    for paper, table, pair in compared_everywhere(contents.results.done):
        where = f"{paper.name}, {table.number}: {pair.row.label}, {pair.label}"
        by_task[pair.task].append((where, pair))
    pairs = [pair for rows in by_task.values() for _, pair in rows]
    ends = [abs(end) for pair in pairs for end in pair.difference.interval if math.isfinite(end)]
    words = [pair.word for pair in pairs]
    return BesidePapers(
        by_task={task: rows for task, rows in by_task.items() if rows},
        half_axis=math.ceil(min(WIDEST, max([1.0, *ends]))),
        counts={word: words.count(word) for word in SIGNS if word in words},
    )
