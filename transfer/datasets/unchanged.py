"""Comparison of data sets with their check, for each opened split and before each record."""

from collections.abc import Mapping

from transfer.datasets.catalog import dataset_info
from transfer.datasets.check import Report
from transfer.datasets.images import DataError
from transfer.datasets.info import AnySplit
from transfer.datasets.splits import Split
from transfer.running.folders import Folders


class ChangedDataError(DataError):
    """A data set is no longer what was checked."""


def usable_split(folders: Folders, key: str, split: str, opened: Split) -> Split:
    """Return an opened split without the broken images that the user tolerates.

    ChangedDataError if it is not the split that was checked.
    """
    if key in folders.reports:
        require_unchanged(folders.reports[key], split, opened)
    return opened.without(folders.broken) if folders.broken else opened


def require_unchanged(report: Report, split: str, opened: AnySplit) -> None:
    """Raise ChangedDataError unless an opened split is the one that was checked."""
    checked = report.fingerprints.get(split)
    if checked is None or checked == opened.fingerprint:
        return
    before, now = report.counts.get(split, (len(opened), 0))[0], len(opened)
    what = f"{before:,} images were checked, {now:,} are there now"
    if before == now:
        what = f"names, sizes, classes or labels of its {now:,} images are not those checked"
    raise changed_data_error(report.key, f"{split}: {what}")


def require_same_fingerprint(report: Report, now: str) -> None:
    """Raise ChangedDataError unless a whole set still has the fingerprint that was checked."""
    if now != report.fingerprint:
        raise changed_data_error(report.key, f"fingerprint {report.fingerprint} checked, {now} now")


def require_same_files(report: Report, opened: Mapping[str, AnySplit]) -> None:
    """Raise ChangedDataError if an image was written since the check, whatever its size is now.

    opened: the splits, opened now, by name.
    """
    for split, before in report.last_writes.items():
        if split in opened and opened[split].source.last_writes() != before:
            raise changed_data_error(report.key, f"{split}: image files were written meanwhile")


def changed_data_error(key: str, what: str) -> ChangedDataError:
    """Return the error that names a changed set, and says what to do."""
    return ChangedDataError(
        f"{dataset_info(key).title} ({key}) has changed while it was being used; {what}. No result "
        "is written. Start the same command again once nothing changes the set any more"
    )
