"""Logs of pre-training runs, kept below the results so that figures can be drawn again.

A run's folder holds metrics.jsonl and, once it has ended, backbone.pt with its origin. Only the log
of a run that has ended is taken: a line over a part of the run would be half a figure.
"""

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.drawing.figure import TrainingLog
from benchmarks.pages.records import TRAINING_LOGS
from transfer.running.atomic_files import write_whole

FORMAT = "ssl-training-log/1"
LOG_FILE, BACKBONE_FILE = "metrics.jsonl", "backbone.pt"


class LogError(ValueError):
    """A folder without the complete log of a run: what was found and what to do."""


def read_run(folder: Path, name: str) -> TrainingLog:
    """Return the log of a run that has ended; LogError for any other folder."""
    path, backbone = folder / LOG_FILE, folder / BACKBONE_FILE
    if not path.is_file():
        raise LogError(f"{folder}: no {LOG_FILE}; expected the --out folder of python -m pretrain")
    lines, torn = _lines(path)
    if torn:
        raise LogError(
            f"{path}: line {torn} is torn, the log was cut short after step "
            f"{lines[-1]['step'] if lines else 0:g}; the command that started the run continues it"
        )
    if not backbone.is_file():
        raise LogError(
            f"{folder}: no {BACKBONE_FILE}, so the run has not ended (step "
            f"{lines[-1]['step'] if lines else 0:g}); the command that started it continues it"
        )
    made_by = _origin(backbone)
    steps = made_by.get("steps")
    if not lines or lines[-1]["step"] != steps:
        raise LogError(
            f"{path}: ends at step {lines[-1]['step'] if lines else 0:g}, but the run had {steps}; "
            "the log was cut short, or is that of another run"
        )
    return TrainingLog(name=name, made_by=made_by, lines=tuple(lines))


def _lines(path: Path) -> tuple[list[dict[str, float]], int]:
    """Return the lines' finite numbers, and the number of the first torn line or 0.

    A line without a finite step and epoch is torn.
    """
    lines: list[dict[str, float]] = []
    for number, text in enumerate(path.read_text(errors="replace").splitlines(), 1):
        try:
            line = json.loads(text)
            numbers = {k: float(v) for k, v in line.items() if isinstance(v, int | float)}
            finite = {k: v for k, v in numbers.items() if math.isfinite(v)}
            finite["step"], finite["epoch"]
        except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
            return lines, number
        lines.append(finite)
    return lines, 0


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
    content = {
        "format": FORMAT,
        "name": log.name,
        "made_by": log.made_by,
        "metrics": _columns(log.lines),
    }
    write_whole(path, (json.dumps(content, indent=1) + "\n").encode(), "--results")
    return path


def _columns(lines: Sequence[dict[str, float]]) -> dict[str, list[float | None]]:
    names = dict.fromkeys(name for line in lines for name in line)
    return {
        name: [float(f"{line[name]:.6g}") if name in line else None for line in lines]
        for name in names
    }


def read_logs(results: Path) -> tuple[tuple[TrainingLog, ...], tuple[str, ...]]:
    """Return the logs below the results, and a sentence for each file that is none."""
    logs, warnings = [], []
    for path in sorted((results / TRAINING_LOGS).glob("*.json")):
        try:
            logs.append(_parse(json.loads(path.read_text(encoding="utf-8"))))
        except (ValueError, KeyError, TypeError, AttributeError) as error:
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
    if not lines or not all("epoch" in line for line in lines):
        raise ValueError("lines without epoch")
    return TrainingLog(name=content["name"], made_by=made_by, lines=tuple(lines))
