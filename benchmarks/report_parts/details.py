"""Explanations of the records behind a number of ours, which open on request."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Details:
    """Explanations of the records that the page shows, and their places in its list."""

    listed: list[dict[str, Any]] = field(default_factory=list)
    """Title and sections of each explanation, as the page's script reads them."""
    places: dict[str, int] = field(default_factory=dict)
    """Place in the list by the record's path."""

    def of_files(self, files: Iterable[str]) -> str:
        """Return the places of records, separated by spaces; empty if there are none."""
        return " ".join(str(self.places[file]) for file in files if file in self.places)
