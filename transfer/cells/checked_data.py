"""Check a cell's datasets, and detect later changes.

The check reads every file, so each process checks a dataset once. Later changes are detected by
comparison with its report: each extraction and training compares its images before and after it
(`images.unchanged`), and the complete dataset is compared before a result is written.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

from pretrain.running.processes import wait_for_all
from transfer.datasets.catalog import DATASETS, load_annotations, open_any
from transfer.datasets.check import DISJOINT, Report, combine_fingerprints, require
from transfer.datasets.expected import DataError
from transfer.datasets.folders import Folders
from transfer.datasets.images import ChangedDataError, changed_data_error
from transfer.datasets.info import AnySplit


@lru_cache(maxsize=64)
def fingerprint(key: str, data: Path, cache: Path) -> str:
    """Return the fingerprint of a dataset's training and test splits.

    A dataset with a single split has its fingerprint. The result is cached, since a plan needs it
    many times; `evaluate` clears the cache. Annotations are read from arrays in the cache folder,
    if they exist.
    """
    load_annotations([key], data, cache, parse=False)
    splits = _open_splits(key, data)
    return combine_fingerprints({split: images.fingerprint for split, images in splits.items()})


def _open_splits(key: str, data: Path) -> dict[str, AnySplit]:
    splits = [split for split in DISJOINT if split in DATASETS[key].counts]
    return {split: open_any(key, data, split) for split in splits}


@lru_cache(maxsize=64)
def check_once(key: str, data: Path, tolerated: int) -> Report:
    """Return a dataset's report; DataError if it is incomplete or broken."""
    return require(key, data, tolerated=tolerated)


def checked_folders(
    keys: Sequence[str], folders: Folders, tolerated: int, *, checks_again: bool = False
) -> tuple[dict[str, Report], Folders]:
    """Return the reports of datasets, and the folders with the names of broken images.

    checks_again: check again if the datasets have changed since their check.
    """
    reports = {key: check_once(key, folders.data, tolerated) for key in keys}
    if checks_again:
        try:
            check_unchanged(reports, folders.data)
        except ChangedDataError:
            check_once.cache_clear()
            reports = {key: check_once(key, folders.data, tolerated) for key in keys}
    broken = frozenset(name for report in reports.values() for name in report.unreadable)
    wait_for_all("that check the data", all_work=True)
    return reports, replace(folders, broken=broken)


def check_unchanged(reports: Mapping[str, Report], data: Path) -> None:
    """Raise ChangedDataError with the name of a dataset that has changed since its check."""
    fingerprint.cache_clear()
    for key, report in reports.items():
        try:
            splits = _open_splits(key, data)
        except DataError as error:
            raise _changed(key, str(error)) from error
        current = combine_fingerprints({s: images.fingerprint for s, images in splits.items()})
        if current != report.fingerprint:
            raise _changed(key, f"fingerprint {report.fingerprint} checked, {current} now")
        for split, images in splits.items():
            if images.states() != report.states[split]:
                raise _changed(key, f"{split}: image files were written in the meantime")


def _changed(key: str, reason: str) -> ChangedDataError:
    return changed_data_error(f"{key} has changed while it was being used; {reason}")
