"""Logs of pre-training runs, stored in the results to draw figures again.

A run's folder contains metrics.jsonl and, at the end of the run, backbone.pt with its origin. Only
logs of finished runs are stored, since figures need the complete run.
"""

import json
import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from benchmarks.drawing.selection import Point, mean_point
from benchmarks.results.records import TRAINING_LOGS, Backbone, backbone_of
from pretrain.running.atomic_files import write_whole

FORMAT = "ssl-training-log/1"
LOG_FILE, BACKBONE_FILE = "metrics.jsonl", "backbone.pt"
MAX_POINTS = 50
"""Maximum number of points per curve."""
LOG_START: Mapping[str, float] = {"step": 0.0, "epoch": 0.0}
"""Virtual log entry before the first step."""


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
    try:
        return _complete_log(name, made_by, read_lines(path))
    except (ValueError, KeyError) as error:
        reason = "the log is truncated, or belongs to another run"
        raise ValueError(f"{path}: {error}; {reason}") from error


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


def _complete_log(
    name: str, made_by: dict[str, Any], lines: Sequence[dict[str, float]]
) -> TrainingLog:
    """Return the log of a whole run.

    Raises ValueError if a line is incomplete, or if the last step differs from the run's.
    """
    # raises if the settings do not state the number of epochs
    float(made_by["settings"]["epochs"])
    for number, line in enumerate(lines, 1):
        if not (line.get("step", 0) > 0 and line.get("epoch", 0) > 0):
            raise ValueError(f"line {number} is incomplete")
    last, steps = lines[-1]["step"] if lines else 0, made_by.get("steps")
    if last != steps:
        raise ValueError(f"ends at step {last:g}, but the run had {steps}")
    return TrainingLog(name, made_by, lines)


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


def read_logs(results: Path) -> tuple[tuple[TrainingLog, ...], tuple[str, ...]]:
    """Return the logs in the results, and messages on invalid files."""
    logs, warnings = [], []
    for path in sorted((results / TRAINING_LOGS).glob("*.json")):
        try:
            logs.append(_parse(json.loads(path.read_text(encoding="utf-8"))))
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError) as error:
            warnings.append(
                f"{path}: not a log of pre-training ({error}); store it again with --logs"
            )
    return tuple(logs), tuple(warnings)


def _parse(content: dict[str, Any]) -> TrainingLog:
    if content["format"] != FORMAT:
        raise ValueError(f"format {content['format']!r}, expected {FORMAT!r}")
    columns: dict[str, list[float | None]] = content["metrics"]
    lines = [
        {
            name: value
            for name, value in zip(columns, row, strict=True)
            if value is not None and math.isfinite(value)
        }
        for row in zip(*columns.values(), strict=True)
    ]
    return _complete_log(content["name"], dict(content["made_by"]), lines)


def curve_points(logs: Sequence[TrainingLog], name: str, *, last_step: bool) -> tuple[Point, ...]:
    """Return the points of a metric's curve: means and standard deviations over runs.

    Args:
        logs: logs of runs with equal settings.
        name: the metric.
        last_step: plot a value at the last step of its log interval, not at its center.

    Returns:
        At most MAX_POINTS points. With more values, each point is a mean over an equal section of
        the runs.
    """
    count = min(MAX_POINTS, *(len(log.lines) for log in logs))
    sections: dict[int, list[tuple[float, float]]] = {}
    for log in logs:
        by_section: dict[int, list[tuple[float, float, float]]] = {}
        for index, (previous, line) in enumerate(pairwise([LOG_START, *log.lines])):
            if name in line:
                x = line["epoch"] if last_step else (previous["epoch"] + line["epoch"]) / 2
                value = line["step"] - previous["step"], x, line[name]
                by_section.setdefault(index * count // len(log.lines), []).append(value)
        for section, section_values in by_section.items():
            steps, xs, ys = zip(*section_values, strict=True)
            sections.setdefault(section, []).append((fmean(xs, steps), fmean(ys, steps)))
    return tuple(
        mean_point(fmean(x for x, _ in values), [y for _, y in values])
        for _, values in sorted(sections.items())
    )
