"""Records and failures of a results folder, read once for all parts of the page."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

from benchmarks.pages.calibration import calibration_line
from benchmarks.pages.records import Results, read_results, require_folder


@dataclass(frozen=True, kw_only=True)
class Contents:
    """Everything in a results folder that the page shows."""

    folder: Path
    results: Results
    snapshots: Results
    """Results of snapshots of pre-training runs."""
    calibration: str
    """Sentence on the public checkpoint that this installation reproduced."""


def read_contents(folder: Path) -> Contents:
    """Return the contents of a results folder; FileNotFoundError if there is no such folder."""
    require_folder(folder)
    results, snapshots = read_results(folder), read_results(folder, snapshots=True)
    calibration = calibration_line(folder)
    return Contents(folder=folder, results=results, snapshots=snapshots, calibration=calibration)


Section = tuple[str, tuple[tuple[str, str], ...]]
"""Title, and lines of a label and a text."""


@dataclass
class Details:
    """Explanations of the records that the page shows, and their places in its list."""

    listed: list[dict[str, Any]] = field(default_factory=list)
    """Address, title and places of the sections of each explanation."""
    sections: dict[Section, int] = field(default_factory=dict)
    """Place of each section: many records have the same protocol or checkpoint."""
    addresses: dict[str, str] = field(default_factory=dict)
    """Address on the page, such as jcl/voc07_svm, by the record's path."""

    def add(self, address: str, title: str, sections: Iterable[Section]) -> None:
        """Add an explanation of sections with titles."""
        places = [self.sections.setdefault(one, len(self.sections)) for one in sections]
        self.listed.append({"address": address, "title": title, "sections": places})

    @property
    def content(self) -> dict[str, Any]:
        """Return all explanations as the page's script reads them."""
        return {"records": self.listed, "sections": [*self.sections]}

    def of_files(self, files: Iterable[str]) -> str:
        """Return the address of records, behind a "#"; empty if there are none."""
        known = [quote(self.addresses[file], safe="/@") for file in files if file in self.addresses]
        return f"#{','.join(known)}" if known else ""
