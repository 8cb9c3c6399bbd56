"""Logs of pre-training runs: progress, charts and first views."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.drawing.logs import LOG_FILE, read_lines, read_logs
from benchmarks.report_parts.charts import Draft, line_charts
from benchmarks.report_parts.document import Chart, Gallery, Image, Part, jpeg_address
from benchmarks.results.records import REPORT, TRAINING_LOGS
from benchmarks.results.tables import plain
from pretrain.running.atomic_files import write_whole

VIEW_SHEET = "views.jpg"
TITLES = {
    "loss": "Loss",
    "learning_rate": "Learning rate",
    "images_per_s": "Images per second",
    "data_share": "Time spent waiting for images, percent",
}
"""Titles of the quantities that every run logs, in order."""
RATES = ("learning_rate", "images_per_s", "data_share")
"""Quantities with a y axis that starts at zero."""
POSITIONS = ("step", "epoch")
"""Entries of a log line that are positions."""


@dataclass(frozen=True, kw_only=True)
class Log:
    """Lines of one run's log."""

    name: str
    path: str
    lines: tuple[Mapping[str, float], ...]
    views: str
    """Data URL of a picture of the first views; empty if missing."""

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


def pretraining_parts(results: Path, runs: Sequence[Path]) -> list[Part]:
    """Return progress, charts and first views of pre-training runs.

    runs: folders of runs, or folders that contain runs. Logs stored in the results folder are
    added, without duplicates.
    """
    files = {run: log_files(run) for run in dict.fromkeys(run.resolve() for run in runs)}
    logs = [_read(path) for path in dict.fromkeys(p for paths in files.values() for p in paths)]
    contents = {_content(log) for log in logs}
    logs += [log for log in kept_logs(results) if _content(log) not in contents]
    lines = [f"- **{plain(log.name)}**: {log.summary} " for log in logs]
    lines += [
        f"- **{plain(str(run))}**: no {LOG_FILE} in it or its subfolders"
        for run, paths in files.items()
        if not paths
    ]
    views = [Image(log.views, f"First views: {log.name}") for log in logs if log.views]
    note = "A row per image, a column per view, as the network sees them."
    galleries = [Gallery("", views, note, kind="gallery")] if views else []
    return ["\n".join(lines), *galleries, *_charts(logs)] if lines else []


def kept_logs(results: Path) -> list[Log]:
    """Return the logs stored in the results folder."""
    return [
        Log(
            name=log.name,
            path=str(results / TRAINING_LOGS / f"{log.name}.json"),
            lines=tuple(line for line in log.lines if "step" in line),
            views="",
        )
        for log in read_logs(results)[0]
    ]


def _content(log: Log) -> tuple[int, tuple[tuple[str, str], ...]]:
    """Return a key of a log's content: line count, rounded last line."""
    last = log.lines[-1] if log.lines else {}
    return len(log.lines), tuple(sorted((name, f"{value:.6g}") for name, value in last.items()))


def log_files(run: Path) -> list[Path]:
    """Return the logs of a run or of a folder's runs."""
    log_file = run / LOG_FILE
    return [log_file] if log_file.is_file() else sorted(run.glob(f"*/{LOG_FILE}"))


def _read(path: Path) -> Log:
    """Return the complete lines of a log that hold a step."""
    lines = tuple(line for line in read_lines(path) if "step" in line)
    sheet = path.with_name(VIEW_SHEET)
    return Log(
        name=path.parent.name,
        path=str(path),
        lines=lines,
        views=jpeg_address(sheet.read_bytes()) if sheet.is_file() else "",
    )


def _charts(logs: Sequence[Log]) -> list[Chart]:
    """Return a chart per quantity; quantities of all runs come first."""
    quantities = dict.fromkeys(TITLES)
    quantities |= dict.fromkeys(name for log in logs for line in log.lines for name in line)
    position = "epoch" if all("epoch" in line for log in logs for line in log.lines) else "step"
    names = [log.name for log in logs]
    unique = [log.path if names.count(log.name) > 1 else log.name for log in logs]
    drafts = []
    for quantity in (name for name in quantities if name not in POSITIONS):
        title = TITLES.get(quantity, quantity.replace("_", " ").capitalize())
        series = {
            name: [(line[position], line.get(quantity, math.nan)) for line in log.lines]
            for name, log in zip(unique, logs, strict=True)
        }
        drafts.append(
            Draft(
                title=title,
                x=position,
                y=title.lower() if len(title) < 20 else "",
                series=series,
                markers=False,
                from_zero=quantity in RATES,
            )
        )
    return line_charts(drafts)


FILE = "runs.json"
"""File next to the report with the run folders to show again."""
SNAPSHOTS_OF_RUN = "snapshots"


def runs_of_files(files: Iterable[str]) -> tuple[Path, ...]:
    """Return the runs that checkpoint files belong to, if they have logs."""
    folders = [Path(file).parent for file in files if file]
    runs = [folder.parent if folder.name == SNAPSHOTS_OF_RUN else folder for folder in folders]
    return tuple(dict.fromkeys(run.resolve() for run in runs if (run / LOG_FILE).is_file()))


def remembered_runs(results: Path) -> tuple[Path, ...]:
    """Return the remembered run folders; empty if missing or invalid."""
    try:
        listed = json.loads((results / REPORT / FILE).read_text(encoding="utf-8"))
        return tuple(Path(path) for path in listed)
    except (OSError, ValueError, TypeError):
        return ()


def remember_runs(results: Path, runs: Iterable[Path]) -> None:
    """Write the folders in front of the remembered ones."""
    old = remembered_runs(results)
    new = tuple(dict.fromkeys([*(run.resolve() for run in runs), *old]))
    if new != old:
        content = json.dumps([str(run) for run in new], indent=1) + "\n"
        write_whole(results / REPORT / FILE, content.encode(), "--results")
