"""Where a cell finds its data and leaves its traces."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


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
    reports: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """Reports of the data sets that were checked, by key: what is opened must be what they tell."""

    @property
    def lists(self) -> Path:
        """Which images our draws gave to which split, beside the cache; to be kept."""
        return self.cache.parent / "lists"


def data_folder() -> Path:
    """Return the folder of all data sets: $DATASETS, or ./datasets."""
    return Path(os.environ.get("DATASETS", "datasets"))
