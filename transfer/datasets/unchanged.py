"""Comparison of data sets with their check: for each opened split, and before anything is believed.

Work on disk that no comparison has followed yet has a name or a mark that holds the state of the
very files it was made of: their sizes and modification times. Nobody finds it once these differ.
The next comparison gives it its public name, under the data's fingerprint, where other processes
and runs on a copy of the data find it. A folder that is moved away and back leaves no trace in its
files: that is noticed by a comparison in between, which follows every error and stop.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from pretrain.running.atomic_files import content_hash, explain_write_errors
from pretrain.running.console import print_line
from transfer.datasets.expected import DataError
from transfer.datasets.folders import Folders
from transfer.datasets.images import states_of
from transfer.datasets.splits import Split, without

if TYPE_CHECKING:
    from transfer.datasets.check import Report

CHEAP_SHARE = 0.01
"""Share of the running time that comparisons amid the work may take."""
FIRST_S = 3600.0
"""Time before the first of these, whose cost is not known."""


class ChangedDataError(DataError):
    """A data set is no longer what was checked."""


def usable_split(folders: Folders, key: str, split: str, opened: Split) -> Split:
    """Return an opened split without the broken images that the user tolerates.

    ChangedDataError if it is not the split that was checked, DataError if no image is left.
    """
    report = folders.reports.get(key)
    checked = report.fingerprints.get(split) if report else None
    if checked is not None and checked != opened.fingerprint:
        what = f"names, sizes, classes or labels of its {len(opened):,} images have changed"
        raise changed_data_error(key, f"{split}: {what}")
    usable = without(opened, folders.broken) if folders.broken else opened
    if not len(usable):
        raise DataError(
            f"{key}, {split}: {len(opened):,} images, of which none can be used; expected at least "
            f"one. See python -m transfer check-data --sets {key}"
        )
    return usable


def require_same_files(report: Report) -> None:
    """Raise ChangedDataError if a file has another size or modification time than at the check."""
    now = states_of(report.files)
    for split, before in report.states.items():
        if now[split] != before:
            what = f"{split}: image files were written meanwhile"
            raise changed_data_error(report.key, what)


def changed_data_error(key: str, what: str) -> ChangedDataError:
    """Return the error that names a changed set, and says what to do."""
    return ChangedDataError(
        f"the data set {key} has changed while it was being used; {what}. No result is written. "
        "Start the same command again once nothing changes the set any more"
    )


def state_of(reports: Mapping[str, Report]) -> str:
    """Return a hash of the state of all files of checked sets; empty if all is in memory."""
    states = {key: report.states for key, report in reports.items() if any(report.states.values())}
    return content_hash(states, 16) if states else ""


@dataclass
class _Checked:
    """The sets that a block works on, and what it costs to compare them."""

    reports: tuple[Report, ...] = ()
    state: str = ""
    compared_s: float = field(default_factory=time.monotonic)
    cost_s: float = field(default_factory=lambda: FIRST_S * CHEAP_SHARE)

    def require_same(self) -> None:
        began_s = time.monotonic()
        for report in self.reports:
            require_same_files(report)
        self.compared_s = time.monotonic()
        self.cost_s = self.compared_s - began_s


_checked: ContextVar[_Checked] = ContextVar("checked", default=_Checked())  # noqa: B039


@contextmanager
def working_on(reports: Iterable[Report], state: str) -> Iterator[None]:
    """Compare work within the block with these sets; state: of their files, in all processes."""
    token = _checked.set(_Checked(tuple(reports), state))
    try:
        yield
    finally:
        _checked.reset(token)


def current_state() -> str:
    """Return the state of the files that the work is made of; empty if it needs no comparison."""
    return _checked.get().state


class Unproven(Protocol):
    """Work on disk that is believed for the same files only, until it is published."""

    @property
    def pending(self) -> bool:
        """Return whether there is work that no comparison has followed."""

    def publish(self) -> None:
        """Make the work visible to all processes."""

    def discard(self) -> None:
        """Forget what was not published."""


@contextmanager
def proving(*works: Unproven) -> Iterator[None]:
    """Compare the data at the block's end, then publish its work, or drop it if they have changed.

    That is done for any error and stop, too, which then go on. ChangedDataError after none.
    """
    try:
        yield
    except BaseException:
        with suppress(OSError):  # the work stays unproven
            try:
                prove(*works)
            except ChangedDataError as error:
                print_line("data", f"{error}; what was made of it since the check is dropped")
        raise
    prove(*works)


def prove(*works: Unproven) -> None:
    """Compare the data, then publish the work; ChangedDataError, without it, if they changed."""
    pending = [work for work in works if work.pending]
    if not pending:
        return
    try:
        _checked.get().require_same()
    except ChangedDataError:
        for work in pending:
            work.discard()
        raise
    for work in pending:
        work.publish()


def prove_if_cheap(*works: Unproven) -> None:
    """Prove work amid its making if that costs little of the time since the last comparison."""
    checked = _checked.get()
    if CHEAP_SHARE * (time.monotonic() - checked.compared_s) > checked.cost_s:
        prove(*works)


class UnprovenFile:
    """A file of unfinished work, written whole: under a private name until it is published."""

    def __init__(self, path: Path) -> None:
        state = current_state()
        self.path = path
        """Its public name."""
        self.private = path.with_name(f"{path.stem}.{state}{path.suffix}") if state else path

    @property
    def newest(self) -> Path:
        """Return the file to go on from, which may be absent."""
        return self.private if self.private.exists() else self.path

    @property
    def pending(self) -> bool:
        """Return whether a comparison must follow."""
        return self.private != self.path and self.private.exists()

    def publish(self) -> None:
        """Give the file its public name."""
        with explain_write_errors(self.path, "--runs"):
            self.private.replace(self.path)

    def discard(self) -> None:
        """Delete what was not published."""
        self.private.unlink(missing_ok=True)
