"""A cell that was started here or submitted to a cluster, and what its files tell of it since.

A record or a failure that is newer than the start ends a cell. Versions of one file are compared,
since a file server's clock may differ from this machine's.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from transfer.record import failure_path, record_files


@dataclass(frozen=True, kw_only=True)
class StartedCell:
    """A cell, known by the path of its record; the checkpoint need not be read to follow it."""

    backbone: str
    key: str
    seed: int
    record: str
    """Path of the cell's record; further records of the cell may lie beside it."""
    before: tuple[int, int]
    """Versions of the newest record and of the failure at the start, 0 where there was none."""

    @property
    def done(self) -> bool:
        """Return whether a record was written since the start."""
        return newest_version(Path(self.record)) not in (0, self.before[0])

    @property
    def failure(self) -> str | None:
        """Return the reason in a failure file written since the start; None if there is none."""
        path = failure_path(Path(self.record))
        if version(path) in (0, self.before[1]):
            return None
        return str((read_json(path) or {}).get("reason", ""))


def versions(record: Path) -> tuple[int, int]:
    """Return the versions of a cell's newest record and of the failure file beside it."""
    return newest_version(record), version(failure_path(record))


def newest_version(record: Path) -> int:
    """Return the latest version among the records of the cell at this path, 0 if there is none."""
    return max(map(version, record_files(record)), default=0)


def version(path: Path) -> int:
    """Return the modification time of a file in ns, its version; 0 if there is no file."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def read_json(path: Path) -> dict[str, Any] | None:
    """Return the content of a JSON file; None if it is absent or torn."""
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    return content if isinstance(content, dict) else None
