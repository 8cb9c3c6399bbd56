"""The check of a cell's data sets, and the detection of later changes.

The check reads every file, so each process makes it once per set. Every split that a task opens is
compared with the report (`unchanged.usable_split`), and so is the whole set before a result is
written.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import TypeVar

from transfer.datasets.catalog import DATASETS, map_stored_annotations, open_any
from transfer.datasets.check import DISJOINT, Report, combine_fingerprints, require
from transfer.datasets.images import DataError
from transfer.datasets.info import AnySplit
from transfer.datasets.unchanged import (
    ChangedDataError,
    changed_data_error,
    require_same_files,
    require_same_fingerprint,
)
from transfer.running.console import print_line
from transfer.running.folders import Folders

T = TypeVar("T")


@lru_cache(maxsize=64)
def fingerprint(key: str, data: Path, cache: Path) -> str:
    """Return the fingerprint of the training and test splits of a set, or of its only split.

    It is cached, since a plan needs it many times; `evaluate` clears the cache. Annotations come
    from the arrays in the cache folder, where these are.
    """
    map_stored_annotations(key, data, cache)
    return _fingerprint_of(_open_disjoint(key, data))


def _open_disjoint(key: str, data: Path) -> dict[str, AnySplit]:
    """Return the opened training and test splits of a set, or its only split."""
    splits = [split for split in DISJOINT if split in DATASETS[key].counts]
    return {split: open_any(key, data, split) for split in splits}


def _fingerprint_of(opened: Mapping[str, AnySplit]) -> str:
    return combine_fingerprints({split: images.fingerprint for split, images in opened.items()})


@lru_cache(maxsize=64)
def check_once(key: str, data: Path, tolerated: int) -> Report:
    """Return the report of a data set; DataError if the set is incomplete or broken."""
    return require(key, data, tolerated=tolerated)


def folders_with_reports(
    keys: Sequence[str], folders: Folders, tolerated: int
) -> tuple[dict[str, Report], Folders]:
    """Return the reports of data sets, and the folders with these reports and broken images."""
    reports = {key: check_once(key, folders.data, tolerated) for key in keys}
    broken = frozenset(name for report in reports.values() for name in report.unreadable)
    return reports, replace(folders, broken=broken, reports=reports)


def run_on_checked_data(
    keys: Sequence[str],
    folders: Folders,
    tolerated: int,
    work: Callable[[Folders], T],
    *,
    since_s: float,
) -> tuple[dict[str, Report], T]:
    """Return the reports of data sets, and the result of `work` on them.

    If a set has changed since an earlier cell checked it, all sets are checked again and the work
    is repeated. ChangedDataError if all checks began after `since_s` (monotonic time): the change
    then happened during this cell.
    """
    reports, known = folders_with_reports(keys, folders, tolerated)
    try:
        # the work would be in vain if its end told a change from before its start
        for key, report in _earlier(reports, since_s).items():
            require_same_files(report, _open_again(key, folders.data))
        return reports, work(known)
    except ChangedDataError:
        if not _earlier(reports, since_s):
            raise
    print_line("data", f"{', '.join(keys)} changed since an earlier task: checked again")
    check_once.cache_clear()
    reports, known = folders_with_reports(keys, folders, tolerated)
    return reports, work(known)


def _earlier(reports: Mapping[str, Report], since_s: float) -> dict[str, Report]:
    """Return the reports of checks that began before `since_s`, by data set."""
    return {key: report for key, report in reports.items() if report.began_s < since_s}


@contextmanager
def without_state_of_changed_data(folders: Folders) -> Iterator[None]:
    """Delete what was written to the cell's folder and the cache if a ChangedDataError is raised.

    Features and checkpoints are named by the fingerprint that was checked, but may come from the
    files that had replaced the checked ones: they must not serve once those are back.
    """
    before = _times_of(folders)
    try:
        yield
    except ChangedDataError:
        for file, time_ns in _times_of(folders).items():
            if before.get(file) != time_ns:
                file.unlink(missing_ok=True)
        raise


def _times_of(folders: Folders) -> dict[Path, int]:
    """Return the time of the last change of each file that may hold state."""
    times = {}
    for folder in (folders.work, folders.cache):
        for file in folder.rglob("*"):
            # other processes write and delete beside this one; the lock stays, since it is held
            with suppress(FileNotFoundError):
                if file.is_file() and file.name != "lock":
                    times[file] = file.stat().st_mtime_ns
    return times


def require_still_same(reports: Mapping[str, Report], data: Path) -> None:
    """Compare all sets with their reports; ChangedDataError names a set that has changed."""
    fingerprint.cache_clear()
    for key, report in reports.items():
        opened = _open_again(key, data)
        require_same_fingerprint(report, _fingerprint_of(opened))
        require_same_files(report, opened)


def _open_again(key: str, data: Path) -> dict[str, AnySplit]:
    """Return the splits of a set that was checked; ChangedDataError if they do not open now."""
    try:
        return _open_disjoint(key, data)
    except DataError as error:
        raise changed_data_error(key, str(error)) from error
