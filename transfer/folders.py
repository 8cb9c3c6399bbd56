"""Where a cell finds its data and leaves its traces."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from transfer.datasets.check import Report
from transfer.datasets.splits import Split
from transfer.datasets.unchanged import require_unchanged


@dataclass(frozen=True)
class Folders:
    """The three places that a task may touch."""

    data: Path
    """All data sets, one folder each."""
    cache: Path
    """Shared by all cells: what may be deleted at any time."""
    work: Path
    """This cell's own: what a resumed run needs."""
    broken: frozenset[str] = frozenset()
    """Images that cannot be read and that the user tolerates: they are left out."""
    classifier: Path | None = None
    """File of the classifier that another cell has trained and this one uses."""
    reports: Mapping[str, Report] = field(default_factory=dict, compare=False)
    """Of the data sets that were checked: what is opened must be what they tell."""

    @property
    def lists(self) -> Path:
        """Which images our draws gave to which split, beside the cache; to be kept."""
        return self.cache.parent / "lists"

    def usable(self, key: str, split: str, opened: Split) -> Split:
        """Return an opened split without the broken images that the user tolerates.

        ChangedDataError if it is not the split that was checked.
        """
        if key in self.reports:
            require_unchanged(self.reports[key], split, opened)
        return opened.without(self.broken) if self.broken else opened
