"""Points of a log's line: its readings, or means of neighboring ones if there are many.

A reading is a mean over the steps since the one before, so it stands at the middle of these. What
a method measures at the last of these steps only stands there.
"""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from statistics import fmean
from typing import NamedTuple

from benchmarks.drawing.figure import Point, TrainingLog
from benchmarks.drawing.kinds import mean_point
from benchmarks.drawing.logs import last_epoch_mean

NUM_PARTS = 50
"""Most points of a log's line."""


class Reading(NamedTuple):
    """One line of a log: means over the steps since the line before."""

    start_epoch: float
    end_epoch: float
    num_steps: float
    values: Mapping[str, float]

    @property
    def middle_epoch(self) -> float:
        """Return the epoch in the middle of its steps."""
        return (self.start_epoch + self.end_epoch) / 2


class LastEpoch(NamedTuple):
    """Mean of a metric over a run's last epoch, as the backbone file states it."""

    value: float
    first_step: int
    """First step of the first reading that ends in the last epoch."""
    num_images: int


def readings_of(log: TrainingLog) -> list[Reading]:
    """Return the readings of a run in their order."""
    start = {"step": 0.0, "epoch": 0.0}
    return [
        Reading(before["epoch"], line["epoch"], line["step"] - before["step"], line)
        for before, line in pairwise([start, *log.lines])
    ]


def are_single(logs: Sequence[TrainingLog]) -> bool:
    """Return whether each point of these runs is one reading."""
    steps = {tuple(line["step"] for line in log.lines) for log in logs}
    return len(steps) == 1 and len(logs[0].lines) <= NUM_PARTS


def points_of(logs: Sequence[TrainingLog], name: str, *, last_step: bool) -> tuple[Point, ...]:
    """Return the points of a metric; several runs give a standard deviation.

    last_step: a reading is that of the last of its steps.
    """
    parts: dict[int, list[tuple[float, float]]] = {}
    for log in logs:
        own: dict[int, list[Reading]] = {}
        for place, reading in enumerate(readings_of(log)):
            if name in reading.values:
                part = place if are_single(logs) else _part(reading, logs)
                own.setdefault(part, []).append(reading)
        for part, readings in own.items():
            steps = sum(reading.num_steps for reading in readings)
            x = y = 0.0
            for reading in readings:
                share = reading.num_steps / steps
                x += share * (reading.end_epoch if last_step else reading.middle_epoch)
                y += share * reading.values[name]
            parts.setdefault(part, []).append((x, y))
    return tuple(
        mean_point(fmean(x for x, _ in both), [y for _, y in both])
        for _, both in sorted(parts.items())
    )


def _part(reading: Reading, logs: Sequence[TrainingLog]) -> int:
    """Return which of equal parts of the runs holds the middle of a reading."""
    count = min(NUM_PARTS, *(len(log.lines) for log in logs))
    length = max(log.lines[-1]["epoch"] for log in logs)
    return min(int(reading.middle_epoch / length * count), count - 1)


def last_epoch_of(log: TrainingLog, name: str) -> LastEpoch | None:
    """Return the mean of a metric over a run's last epoch; None without any reading of it."""
    last = log.lines[-1]
    before = last["step"] - last["step"] / last["epoch"]
    value = last_epoch_mean(log.lines, name, before)
    if value is None:
        return None
    ends = [0.0, *(line["step"] for line in log.lines)]
    first = next(start for start, end in pairwise(ends) if end > before)
    # the means that tables judge have all their digits
    value = (log.made_by.get("last_epoch") or {}).get(name, value)
    batch = log.made_by["settings"].get("batch_size") or 0
    return LastEpoch(value, int(first) + 1, round((last["step"] - first) * batch))
