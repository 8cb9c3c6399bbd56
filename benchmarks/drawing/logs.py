"""Logs of pre-training runs, kept below the results so that figures can be drawn again.

A run's folder holds metrics.jsonl and, once it has ended, backbone.pt with its origin. Only the log
of a run that has ended is taken: a line over a part of the run would be half a figure.
"""

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any, NamedTuple

from benchmarks.drawing.figure import Point, TrainingLog
from benchmarks.drawing.kinds import mean_point
from benchmarks.pages.records import TRAINING_LOGS
from pretrain.running.atomic_files import write_whole

FORMAT = "ssl-training-log/1"
LOG_FILE, BACKBONE_FILE = "metrics.jsonl", "backbone.pt"


class LogError(ValueError):
    """A folder without the complete log of a run: what was found and what to do."""


def read_run(folder: Path, name: str) -> TrainingLog:
    """Return the log of a run that has ended; LogError for any other folder."""
    path, backbone = folder / LOG_FILE, folder / BACKBONE_FILE
    if not path.is_file():
        raise LogError(f"{folder}: no {LOG_FILE}; expected the --out folder of python -m pretrain")
    lines = [{k: v for k, v in line.items() if math.isfinite(v)} for line in read_lines(path)]
    places = (place for place, line in enumerate(lines) if not {"step", "epoch"} <= line.keys())
    torn = next(places, len(lines))
    last = f"step {lines[torn - 1]['step'] if torn else 0:g}"
    if torn < len(lines):
        raise LogError(
            f"{path}: line {torn + 1} is torn, the log was cut short after {last}; the command "
            "that started the run continues it"
        )
    if not backbone.is_file():
        raise LogError(
            f"{folder}: no {BACKBONE_FILE}, so the run has not ended ({last}); the command that "
            "started it continues it"
        )
    made_by = _origin(backbone)
    if lack := _what_lacks(lines, made_by):
        raise LogError(f"{path}: {lack}; the log was cut short, or is that of another run")
    return TrainingLog(name=name, made_by=made_by, lines=tuple(lines))


def read_lines(path: Path) -> list[dict[str, float]]:
    """Return the numbers of each line of a run's log; none of a line that is torn."""
    lines: list[dict[str, float]] = []
    for text in path.read_bytes().decode(errors="replace").splitlines():
        line: dict[str, float] = {}
        with suppress(ValueError, TypeError, AttributeError, OverflowError):
            found = json.loads(text).items()
            line = {name: float(value) for name, value in found if isinstance(value, int | float)}
        lines.append(line)
    return lines


def _what_lacks(lines: Sequence[Mapping[str, float]], made_by: Mapping[str, Any]) -> str:
    """Return what keeps a log from being that of the whole run; empty if nothing does."""
    steps = made_by.get("steps")
    if not lines or lines[-1]["step"] != steps:
        return f"ends at step {lines[-1]['step'] if lines else 0:g}, but the run had {steps}"
    return _hole([line["step"] for line in lines]) or _other_last_epoch(lines, made_by)


def _hole(steps: Sequence[float]) -> str:
    """Return between which steps lines are missing; empty if between none.

    Readings are equally far apart but for the last one, which may come sooner, and a run that was
    resumed may go on at another distance: a hole is wider than the distances on both sides.
    """
    distances = [after - before for before, after in pairwise([0.0, *steps])]
    for place, distance in enumerate(distances):
        if distance <= 0:
            return f"step {steps[place]:g} does not come after the one before it"
        beside = [*distances[max(place - 1, 0) : place], *distances[place + 1 : place + 2]]
        # of two distances the second is what was left of the run: it says nothing about the first
        known = len(distances) > 2 or place == 1
        if known and distance > max(beside):
            start = steps[place] - distance
            return (
                f"no line between the steps {start:g} and {steps[place]:g}, although lines beside "
                f"them are {max(beside):g} steps apart"
            )
    return ""


def _other_last_epoch(lines: Sequence[Mapping[str, float]], made_by: Mapping[str, Any]) -> str:
    """Return which mean over the last epoch is not the one that the backbone file states."""
    stated: Mapping[str, float] = made_by.get("last_epoch") or {}
    steps, epochs = lines[-1]["step"], lines[-1]["epoch"]
    for name, expected in stated.items():
        own = last_epoch_mean(lines, name, steps - steps / epochs)
        # kept logs have six digits
        if own is None or not math.isclose(own, expected, rel_tol=1e-3, abs_tol=1e-6):
            found = "nothing" if own is None else f"{own:.6g}"
            return (
                f"{name} over the last epoch is {found}, but the backbone file says {expected:.6g}"
            )
    return ""


def last_epoch_mean(
    lines: Sequence[Mapping[str, float]], name: str, first_step: float
) -> float | None:
    """Return the mean of a metric over the steps of the lines that end after `first_step`."""
    total = steps = previous = 0.0
    for line in lines:
        if line["step"] > first_step and name in line:
            total += line[name] * (line["step"] - previous)
            steps += line["step"] - previous
        previous = line["step"]
    return total / steps if steps else None


def _origin(backbone: Path) -> dict[str, Any]:
    from transfer.backbone import BackboneError, load_backbone  # imports torch

    try:
        made_by = dict(load_backbone(backbone).made_by)
    except BackboneError as error:
        raise LogError(f"{backbone}: {error}") from error
    if "settings" not in made_by:
        raise LogError(f"{backbone}: does not say how it was made; expected a file of our own")
    return made_by


def keep(log: TrainingLog, results: Path) -> Path:
    """Write the log below the results; return its path."""
    path = results / TRAINING_LOGS / f"{log.name}.json"
    columns = {
        name: [float(f"{line[name]:.6g}") if name in line else None for line in log.lines]
        for name in dict.fromkeys(name for line in log.lines for name in line)
    }
    content = {"format": FORMAT, "name": log.name, "made_by": log.made_by, "metrics": columns}
    write_whole(path, (json.dumps(content, indent=1) + "\n").encode(), "--results")
    return path


def read_logs(results: Path) -> tuple[tuple[TrainingLog, ...], tuple[str, ...]]:
    """Return the logs below the results, and a sentence for each file that is none."""
    logs, warnings = [], []
    for path in sorted((results / TRAINING_LOGS).glob("*.json")):
        try:
            logs.append(_parse(json.loads(path.read_text(encoding="utf-8"))))
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            warnings.append(f"{path}: not a log of pre-training ({error})")
    return tuple(logs), tuple(warnings)


def _parse(content: dict[str, Any]) -> TrainingLog:
    if content["format"] != FORMAT:
        raise ValueError(f"format {content['format']!r}, expected {FORMAT!r}")
    made_by = dict(content["made_by"])
    float(made_by["settings"]["epochs"])
    columns: dict[str, list[float | None]] = content["metrics"]
    lines = [
        {
            name: value
            for name, value in zip(columns, row, strict=True)
            if value is not None and math.isfinite(value)
        }
        for row in zip(*columns.values(), strict=True)
    ]
    if not lines or not all(line.get("step", 0) > 0 < line.get("epoch", 0) for line in lines):
        raise ValueError(f"{len(lines)} lines, some without step or epoch")
    if lack := _what_lacks(lines, made_by):
        raise ValueError(f"{lack}; keep the log of the run again with --logs")
    return TrainingLog(name=content["name"], made_by=made_by, lines=tuple(lines))


NUM_PARTS = 50
"""Most points of a log's line."""
START: Mapping[str, float] = {"step": 0.0, "epoch": 0.0}


class LastEpoch(NamedTuple):
    """Mean of a metric over a run's last epoch, as the backbone file states it."""

    value: float
    first_step: int
    """First step of the first reading that ends in the last epoch."""
    num_images: int


def are_single(logs: Sequence[TrainingLog]) -> bool:
    """Return whether each point of these runs is one reading."""
    steps = {tuple(line["step"] for line in log.lines) for log in logs}
    return len(steps) == 1 and len(logs[0].lines) <= NUM_PARTS


def points_of(logs: Sequence[TrainingLog], name: str, *, last_step: bool) -> tuple[Point, ...]:
    """Return the points of a metric; several runs give a standard deviation.

    A reading stands at the middle of its steps. last_step: it is that of the last of them. Of many
    readings the points are means over equal parts of the runs.
    """
    count = min(NUM_PARTS, *(len(log.lines) for log in logs))
    length = max(log.lines[-1]["epoch"] for log in logs)
    parts: dict[int, list[tuple[float, float]]] = {}
    for log in logs:
        own: dict[int, list[tuple[float, float, float]]] = {}
        for place, (before, line) in enumerate(pairwise([START, *log.lines])):
            if name in line:
                middle = (before["epoch"] + line["epoch"]) / 2
                part = min(int(middle / length * count), count - 1)
                x = line["epoch"] if last_step else middle
                reading = line["step"] - before["step"], x, line[name]
                own.setdefault(place if are_single(logs) else part, []).append(reading)
        for part, readings in own.items():
            steps = sum(number for number, _, _ in readings)
            x, y = (sum(one[0] / steps * one[i] for one in readings) for i in (1, 2))
            parts.setdefault(part, []).append((x, y))
    return tuple(
        mean_point(fmean(x for x, _ in both), [y for _, y in both])
        for _, both in sorted(parts.items())
    )


def last_epoch_of(log: TrainingLog, name: str) -> LastEpoch | None:
    """Return the mean of a metric over a run's last epoch; None without any reading of it."""
    last = log.lines[-1]
    before = last["step"] - last["step"] / last["epoch"]
    value = last_epoch_mean(log.lines, name, before)
    if value is None:
        return None
    steps = (line["step"] for line in (START, *log.lines))
    first = next(start for start, end in pairwise(steps) if end > before)
    # the means that tables judge have all their digits
    value = (log.made_by.get("last_epoch") or {}).get(name, value)
    batch = log.made_by["settings"].get("batch_size") or 0
    return LastEpoch(value, int(first) + 1, round((last["step"] - first) * batch))
