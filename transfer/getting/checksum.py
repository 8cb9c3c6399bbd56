"""Size and checksum of a file, compared with those that were published."""

import hashlib
from pathlib import Path

from transfer.datasets.source import Archive
from transfer.running.console import progress

CHUNK = 1 << 20


def display_unit(num_bytes: int) -> tuple[int, str]:
    """Return the bytes and the name of the unit in which the progress of a file is shown."""
    return (1_000, "kB") if num_bytes < 10_000_000 else (1_000_000, "MB")


def mismatch(archive: Archive, file: Path) -> str:
    """Return how a file differs from the published one; empty if it does not.

    Without a published size and checksum nothing can differ.
    """
    found = file.stat().st_size
    if archive.exact and found != archive.num_bytes:
        return f"{found:,} bytes, {archive.num_bytes:,} expected"
    if not archive.checksum:
        return ""
    kind, _, expected = archive.checksum.partition(":")
    computed = _hash(file, kind, found)
    return "" if computed == expected else f"{kind} {computed}, {expected} expected"


def _hash(file: Path, kind: str, num_bytes: int) -> str:
    digest = hashlib.new(kind, usedforsecurity=False)
    seen = 0
    size, unit = display_unit(num_bytes)
    name = file.name.removesuffix(".part")
    with file.open("rb") as content, progress("verify", name, num_bytes // size, unit) as shown:
        while chunk := content.read(CHUNK):
            digest.update(chunk)
            before, seen = seen, seen + len(chunk)
            shown.add(seen // size - before // size)
    return digest.hexdigest()
