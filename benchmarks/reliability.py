"""The page results/reliability.md: what was done to the suite, how often, and what it survived.

Commands of the tests do the damage and hand over a section each; `write_section` stores it as JSON
below results/reliability and renders the page from all stored sections. Nobody edits the page.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from benchmarks.pages.markdown import bold, table
from transfer.record import commit
from transfer.running.atomic_files import write_whole

PAGE = "reliability.md"
SECTIONS = "reliability"
"""Folder of the stored sections."""
INTRODUCTION = (
    "Damage that was done on purpose, and what came of it. Commands write this page, each its own "
    "section; the command below a table makes it again."
)


@dataclass(frozen=True, kw_only=True)
class Row:
    """One kind of damage."""

    kind: str
    tried: int
    survived: int
    counts: dict[str, int] = field(default_factory=dict)
    """Further counts by name, with the same names in every row of a section."""
    not_survived: str = ""
    """Explanation of the attempts that were not survived; empty if there were none."""

    def __post_init__(self) -> None:
        if not 0 <= self.survived <= self.tried:
            raise ValueError(f"{self.kind}: {self.survived} of {self.tried} attempts survived")


@dataclass(frozen=True, kw_only=True)
class Section:
    """The outcome of one command."""

    name: str
    """Name of the stored file; sections are printed in the order of their names."""
    title: str
    text: str
    """Paragraph that says what was done, and what counts as survived."""
    rows: tuple[Row, ...]
    seed: int
    command: str
    commit: str = field(default_factory=commit)
    """Commit of the code that was tested."""

    def __post_init__(self) -> None:
        if len({tuple(row.counts) for row in self.rows}) != 1:
            raise ValueError(f"the rows of {self.name} must have the same counts, at least one row")


def write_section(results: Path, section: Section) -> Path:
    """Store a section, render the page of all stored sections, and return the page's path.

    A stored section of the same name is replaced. WriteError if a file cannot be written,
    ValueError if a stored section is torn.
    """
    folder = results / SECTIONS
    content = json.dumps(asdict(section), indent=1) + "\n"
    write_whole(folder / f"{section.name}.json", content.encode(), "--results")
    sections = [_read_section(path) for path in sorted(folder.glob("*.json"))]
    page = results / PAGE
    write_whole(page, render(sections).encode(), "--results")
    return page


def render(sections: Sequence[Section]) -> str:
    """Return the page in markdown."""
    texts = ["# Reliability", INTRODUCTION, *(_render_section(section) for section in sections)]
    return "\n\n".join(texts) + "\n"


def _render_section(section: Section) -> str:
    names = list(section.rows[0].counts)
    header = ["kind", "tried", "survived", *names, "not survived"]
    rows = [_cells(row) for row in section.rows]
    total = [sum(row.tried for row in section.rows), sum(row.survived for row in section.rows)]
    total += [sum(row.counts[name] for row in section.rows) for name in names]
    rows.append([bold("all"), *(bold(str(count)) for count in total), ""])
    where = f"Seed {section.seed}, commit {section.commit or 'unknown'}: `{section.command}`"
    return f"## {section.title}\n\n{section.text}\n\n{table(header, rows)}\n\n{where}"


def _cells(row: Row) -> list[str]:
    counts = [str(count) for count in (row.tried, row.survived, *row.counts.values())]
    return [row.kind, *counts, row.not_survived]


def _read_section(path: Path) -> Section:
    try:
        content = json.loads(path.read_text())
        return Section(**{**content, "rows": tuple(Row(**row) for row in content["rows"])})
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(
            f"{path}: not a section of the page ({error}); delete it and run its command again"
        ) from error
