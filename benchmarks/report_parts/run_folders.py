"""Folders of pre-training runs that the page shows, remembered beside it for the next page."""

import json
from collections.abc import Iterable
from pathlib import Path

from benchmarks.drawing.logs import LOG_FILE
from benchmarks.pages.records import REPORT
from benchmarks.report_parts.pretraining import log_files
from pretrain.running.atomic_files import write_whole

FILE = "runs.json"
SNAPSHOTS_OF_RUN = "snapshots"


def runs_with_logs(folders: Iterable[Path]) -> tuple[Path, ...]:
    """Return those folders of checkpoints in which a log lies, or above which if of snapshots."""
    found = []
    for folder in folders:
        run = folder.parent if folder.name == SNAPSHOTS_OF_RUN else folder
        found += [run.resolve()] if (run / LOG_FILE).is_file() else []
    return tuple(dict.fromkeys(found))


def runs_of_files(files: Iterable[str]) -> tuple[Path, ...]:
    """Return the runs of checkpoint files beside which a log lies; empty names are skipped."""
    return runs_with_logs(Path(file).parent for file in files if file)


def remembered_runs(results: Path) -> tuple[Path, ...]:
    """Return the folders of earlier pages that still hold a log."""
    return tuple(run for run in _stored(results) if log_files(run))


def remember_runs(results: Path, runs: Iterable[Path]) -> None:
    """Write the folders in front of the remembered ones."""
    old = _stored(results)
    new = tuple(dict.fromkeys([*(run.resolve() for run in runs), *old]))
    if new != old:
        content = json.dumps([str(run) for run in new], indent=1) + "\n"
        write_whole(results / REPORT / FILE, content.encode(), "--results")


def _stored(results: Path) -> tuple[Path, ...]:
    """Return all remembered folders; none if the file is absent or foreign."""
    try:
        content = json.loads((results / REPORT / FILE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ()
    listed = content if isinstance(content, list) else []
    return tuple(
        Path(path) for path in listed if isinstance(path, str) and Path(path).is_absolute()
    )
