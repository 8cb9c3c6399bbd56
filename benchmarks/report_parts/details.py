"""Explanations of the records behind a number of ours, which open on request."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from benchmarks.pages.explanation import explain
from benchmarks.pages.records import Result
from benchmarks.report_parts.contents import Contents


@dataclass
class Details:
    """Explanations of the records that the page shows, and their places in its list."""

    contents: Contents
    listed: list[dict[str, Any]] = field(default_factory=list)
    """Title and sections of each explanation, as the page's script reads them."""
    places: dict[str, int] = field(default_factory=dict)
    """Place in the list by the record's path."""

    @classmethod
    def of(cls, contents: Contents) -> "Details":
        """Return the explanations of all records but those of snapshots."""
        details = cls(contents)
        for result in contents.results.done:
            details.places[result.file] = len(details.listed)
            details.listed.append(_explanation(contents, result))
        return details

    def of_files(self, files: Iterable[str]) -> str:
        """Return the places of records, separated by spaces; empty if there are none."""
        return " ".join(str(self.places[file]) for file in files if file in self.places)


def _explanation(contents: Contents, result: Result) -> dict[str, Any]:
    """Return title and sections of one record's explanation."""
    record = contents.whole(result)
    title = f"{result.model.label} on {result.task}, seed {result.seed}"
    if record is None:
        lines = [("record", result.file), ("protocol", result.protocol)]
        return {"title": title, "sections": [["Record of an older format", lines]]}
    try:
        sections = explain(contents.folder / result.file, record, result).sections
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        lines = [("record", result.file), ("field", f"{type(error).__name__}: {error}")]
        return {"title": title, "sections": [["Not a complete record", lines]]}
    return {"title": title, "sections": [[name, list(lines)] for name, lines in sections.items()]}
