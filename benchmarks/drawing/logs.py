"""Logs of pre-training runs, stored in the results to draw figures again.

A run's folder contains metrics.jsonl and, at the end of the run, backbone.pt with its origin. Only
logs of finished runs are stored, since figures need the complete run.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.drawing.selection import Point, mean_point
from benchmarks.results.records import TRAINING_LOGS, Backbone, backbone_of, grouped
from pretrain.running.atomic_files import write_whole

FORMAT = "ssl-training-log/1"
LOG_FILE, BACKBONE_FILE = "metrics.jsonl", "backbone.pt"
MAX_POINTS = 50
"""Maximum number of points per curve."""


@dataclass(frozen=True)
class TrainingLog:
    """Metrics of one pre-training run over its epochs."""

    name: str
    made_by: Mapping[str, Any]
    """Origin of the backbone, from its file."""
    lines: Sequence[Mapping[str, float]]
    """Metrics by name, with the epoch at which they were written."""

    @cached_property
    def backbone(self) -> Backbone:
        """The backbone that the run trained."""
        settings = self.made_by["settings"]
        network = {"arch": settings.get("arch", ""), "stem": settings.get("stem", "")}
        return backbone_of({"name": self.name, "sha256": "", **network, "made_by": self.made_by})

    def has(self, metrics: Iterable[str]) -> bool:
        """Return whether all of these metrics were logged."""
        return all(any(name in line for line in self.lines) for name in metrics)


def read_run(folder: Path, name: str) -> TrainingLog:
    """Return the log of a finished run.

    Raises ValueError if the folder is not a run, or if the run is not finished.
    """
    from transfer.encoders.opening import open_file  # --list needs no torch

    path, backbone = folder / LOG_FILE, folder / BACKBONE_FILE
    for file in (path, backbone):
        if not file.is_file():
            raise ValueError(
                f"{folder}: no {file.name}; expected the --out folder of a finished run of "
                "python -m pretrain. To finish a run, start its command again"
            )
    made_by = dict(open_file(backbone)[0].made_by)
    lines = [line for line in read_lines(path) if {"step", "epoch"} <= line.keys()]
    last, steps = lines[-1]["step"] if lines else 0, made_by.get("steps")
    if last != steps:
        raise ValueError(
            f"{path}: ends at step {last:g}, but the run had {steps}; the log is truncated, or "
            "belongs to another run"
        )
    return TrainingLog(name, made_by, lines)


def read_lines(path: Path) -> list[dict[str, float]]:
    """Return the finite values of each line by name; none for a malformed line."""
    lines: list[dict[str, float]] = []
    for text in path.read_bytes().decode(errors="replace").splitlines():
        line: dict[str, float] = {}
        with suppress(ValueError, TypeError, AttributeError, OverflowError):
            entries = json.loads(text).items()
            line = {name: float(value) for name, value in entries if isinstance(value, int | float)}
        lines.append({name: value for name, value in line.items() if math.isfinite(value)})
    return lines


def save_log(log: TrainingLog, results: Path) -> Path:
    """Save the log in the results folder; return its path."""
    path = results / TRAINING_LOGS / f"{log.name}.json"
    columns = {
        name: [float(f"{line[name]:.6g}") if name in line else None for line in log.lines]
        for name in dict.fromkeys(name for line in log.lines for name in line)
    }
    content = {"format": FORMAT, "name": log.name, "made_by": log.made_by, "metrics": columns}
    write_whole(path, (json.dumps(content, indent=1) + "\n").encode(), "--results")
    return path


def read_logs(results: Path) -> list[TrainingLog]:
    """Return the logs in the results."""
    logs = []
    for path in sorted((results / TRAINING_LOGS).glob("*.json")):
        content = json.loads(path.read_text(encoding="utf-8"))
        columns = content["metrics"]
        lines = [
            {name: value for name, value in zip(columns, row, strict=True) if value is not None}
            for row in zip(*columns.values(), strict=True)
        ]
        logs.append(TrainingLog(content["name"], content["made_by"], lines))
    return logs


def curve_points(logs: Sequence[TrainingLog], name: str) -> tuple[Point, ...]:
    """Return the points of a metric's curve: means and standard deviations over runs.

    There are at most MAX_POINTS points. With more values, each point is a mean over an equal
    section of the runs. logs: logs of runs with equal settings.
    """
    count = min(MAX_POINTS, *(len(log.lines) for log in logs))
    sections: dict[int, list[tuple[float, float]]] = {}
    for log in logs:
        by_section = grouped(
            (index * count // len(log.lines), (line["epoch"], line[name]))
            for index, line in enumerate(log.lines)
            if name in line
        )
        for section, values in by_section.items():
            epochs, readings = zip(*values, strict=True)
            sections.setdefault(section, []).append((fmean(epochs), fmean(readings)))
    return tuple(
        mean_point(fmean(x for x, _ in values), [y for _, y in values])
        for _, values in sorted(sections.items())
    )
