"""Logs of pre-training runs: progress, charts and first views."""

import math
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from benchmarks.drawing.logs import LOG_FILE, read_lines, read_logs
from benchmarks.report_parts.charts import Chart, line_charts
from benchmarks.report_parts.document import Gallery, Image, Part, jpeg_address
from benchmarks.results.explanation import file_of
from benchmarks.results.records import TRAINING_LOGS, Run
from benchmarks.results.tables import plain

VIEW_SHEET = "views.jpg"
SNAPSHOTS_OF_RUN = "snapshots"
TITLES = {
    "loss": "Loss",
    "learning_rate": "Learning rate",
    "images_per_s": "Images per second",
    "data_share": "Time spent waiting for images, percent",
}
"""Titles of the quantities that every run logs, in order."""
POSITIONS = ("step", "epoch")
"""Entries of a log line that give the position in the run."""


class Log(NamedTuple):
    """The lines of one run's log that have a step."""

    name: str
    path: Path
    lines: Sequence[Mapping[str, float]]

    @property
    def summary(self) -> str:
        """Return the progress of the run in one line."""
        if not self.lines:
            return "the log is empty"
        last = self.lines[-1]
        texts = [f"step {last['step']:,.0f}"]
        texts += [f"epoch {last['epoch']:.2f}"] if "epoch" in last else []
        texts += [f"loss {last['loss']:.4g}"] if "loss" in last else []
        return ", ".join(texts)

    @property
    def content(self) -> tuple[int, tuple[tuple[str, str], ...]]:
        """Return a key that is equal for two copies of a log: line count, rounded last line."""
        last = self.lines[-1] if self.lines else {}
        return len(self.lines), tuple(sorted((name, f"{last[name]:.6g}") for name in last))


def pretraining_parts(results: Path, runs: Iterable[Path]) -> list[Part]:
    """Return progress, charts and first views of pre-training runs.

    runs: folders of runs, or folders that contain runs. Logs stored in the results folder are
    added, without duplicates.
    """
    files = {run: log_files(run) for run in dict.fromkeys(run.resolve() for run in runs)}
    paths = dict.fromkeys(path for run_files in files.values() for path in run_files)
    logs = [_log(path.parent.name, path, read_lines(path)) for path in paths]
    contents = {log.content for log in logs}
    stored = [
        _log(log.name, results / TRAINING_LOGS / f"{log.name}.json", log.lines)
        for log in read_logs(results)[0]
    ]
    logs += [log for log in stored if log.content not in contents]
    lines = [f"- **{plain(log.name)}**: {log.summary} " for log in logs]
    lines += [
        f"- **{plain(str(run))}**: no {LOG_FILE} in it or its subfolders"
        for run, run_files in files.items()
        if not run_files
    ]
    views = [
        Image(source, f"First views: {log.name}")
        for log in logs
        if (sheet := log.path.with_name(VIEW_SHEET)).is_file()
        and (source := jpeg_address(sheet.read_bytes()))
    ]
    note = "A row per image, a column per view, as the network sees them."
    galleries = [Gallery("", views, note, kind="gallery")] if views else []
    return ["\n".join(lines), *galleries, *_charts(logs)] if lines else []


def log_files(run: Path) -> list[Path]:
    """Return the logs of a run or of a folder's runs."""
    log_file = run / LOG_FILE
    return [log_file] if log_file.is_file() else sorted(run.glob(f"*/{LOG_FILE}"))


def runs_of_records(runs: Iterable[Run]) -> list[Path]:
    """Return the pre-training runs that the evaluated checkpoints belong to, if they have logs."""
    files = dict.fromkeys(file_of(run.record) for run in runs if not run.failure)
    parents = [Path(file).parent for file in files if file]
    folders = [parent.parent if parent.name == SNAPSHOTS_OF_RUN else parent for parent in parents]
    return [folder for folder in dict.fromkeys(folders) if (folder / LOG_FILE).is_file()]


def _log(name: str, path: Path, lines: Iterable[Mapping[str, float]]) -> Log:
    return Log(name, path, [line for line in lines if "step" in line])


def _charts(logs: Sequence[Log]) -> list[Chart]:
    """Return a chart per quantity; quantities of all runs come first."""
    quantities = dict.fromkeys(TITLES)
    quantities |= dict.fromkeys(name for log in logs for line in log.lines for name in line)
    position = "epoch" if all("epoch" in line for log in logs for line in log.lines) else "step"
    names = [log.name for log in logs]
    unique = [str(log.path) if names.count(log.name) > 1 else log.name for log in logs]
    charts = []
    for quantity in (name for name in quantities if name not in POSITIONS):
        title = TITLES.get(quantity, quantity.replace("_", " ").capitalize())
        series = {
            name: [(line[position], line.get(quantity, math.nan)) for line in log.lines]
            for name, log in zip(unique, logs, strict=True)
        }
        charts.append(Chart(title=title, x=position, y="", series=series, markers=False))
    return line_charts(charts)
