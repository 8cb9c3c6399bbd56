"""The folders that a cell reads and writes."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Folders:
    """The three folders that a task may use, and what is known of the data."""

    data: Path
    """Folder of all data sets, one folder each."""
    cache: Path
    """Cache that all cells share; it may be deleted at any time."""
    work: Path
    """Working folder of this cell, with the state that a resumed run needs."""
    broken: frozenset[str] = frozenset()
    """Unreadable images that the user tolerates; they are left out."""
    classifier: Path | None = None
    """File of the classifier that another cell has trained and this one uses."""
    reports: Mapping[str, Any] = field(default_factory=dict, compare=False)
    """Reports of the checked data sets, by key; every opened split must agree with them."""

    @property
    def lists(self) -> Path:
        """Folder, beside the cache, with the lists of drawn splits; these must not be deleted."""
        return self.cache.parent / "lists"


def data_folder() -> Path:
    """Return the folder of all data sets: $DATASETS, or ./datasets."""
    return Path(os.environ.get("DATASETS", "datasets"))
