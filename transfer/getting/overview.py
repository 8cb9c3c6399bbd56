"""The overview of what would be got: state, sizes, addresses and terms, and the space for it."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from transfer.datasets.source import Archive, Source
from transfer.getting.assemble import Getting

HEADER = ("source", "state", "download", "unpacked", "folder", "from")
WORDS = {"registration": "needs a registration", "no home": "has no public address"}


def format_bytes(num_bytes: int, *, exact: bool = True) -> str:
    """Return a size with three digits, such as "171 MB"; a tilde marks a rounded one, of which 0
    is unknown."""
    if not num_bytes and not exact:
        return "unknown"
    size, unit = float(num_bytes), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if size < 999.5:
            break
        size, unit = size / 1000, larger
    digits = f"{size:.0f}" if size >= 99.5 or unit == "B" else f"{size:.3g}"
    return f"{'' if exact else '~'}{digits} {unit}"


def unpacked_bytes(source: Source, getting: Getting) -> int:
    """Return the estimated size of an unpacked set: that of its archives, or of the user's files.

    Images are compressed already; nobody publishes the unpacked sizes.
    """
    own = getting.local.get(source.key, {})
    return sum(
        own[archive.name].stat().st_size if archive.name in own else archive.num_bytes
        for archive in source.archives
    )


def render(sources: Sequence[Source], getting: Getting) -> str:
    """Return a table of the sources, a line on the terms of each, and the sum."""
    rows = [HEADER, *(_row(source, getting) for source in sources)]
    widths = [max(len(row[i]) for row in rows) for i in range(len(HEADER))]
    lines = [
        "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    lines.append("")
    for source in sources:
        lines.append(f"{source.key}: terms: {source.terms}, {source.terms_url}")
        lines += [f"  {note}" for note in _archive_notes(source)]
        if _state(source, getting) in WORDS.values():
            lines.append(f"  {source.advice}")
    lines += ["", summary(sources, getting)]
    return "\n".join(lines)


@dataclass(frozen=True)
class Space:
    """Bytes that the work needs on the disk, and those that are free."""

    needed: int
    free: int


def space(sources: Sequence[Source], getting: Getting) -> Space:
    """Return the space that all sources need until they are there.

    Downloaded archives are counted, or only the largest one if each is removed once it is unpacked.
    """
    possible = [source for source in sources if _is_possible(source, getting)]
    unpacked = sum(unpacked_bytes(s, getting) for s in possible if s.key not in getting.found)
    archives = bytes_to_download(sources, getting)
    if getting.remove_archives and archives:
        archives = max(archive.num_bytes for source in possible for archive in source.archives)
    free = shutil.disk_usage(_existing(getting.data)).free
    return Space(unpacked + archives, free)


def bytes_to_download(sources: Sequence[Source], getting: Getting) -> int:
    """Return the size of all archives that would be downloaded."""
    possible = [source for source in sources if _is_possible(source, getting)]
    return 0 if getting.only_local else sum(map(getting.bytes_to_download, possible))


def summary(sources: Sequence[Source], getting: Getting) -> str:
    """Return one line with the sum of all sizes and the free space."""
    exact = all(archive.exact for source in sources for archive in source.archives)
    download = format_bytes(bytes_to_download(sources, getting), exact=exact)
    room = space(sources, getting)
    return (
        f"{download} to download, about {format_bytes(room.needed)} of space needed with the "
        f"archives; {format_bytes(room.free)} free at {getting.data}"
    )


def _is_possible(source: Source, getting: Getting) -> bool:
    """Return whether a source is absent and can be got without the user's help."""
    return _state(source, getting) not in ("there", *WORDS.values())


def _state(source: Source, getting: Getting) -> str:
    if source.is_there(getting.data):
        return "there"
    if source.key in getting.found:
        return "to link"
    required = [archive for archive in source.archives if not archive.optional]
    at_hand = all(
        getting.archive_file(source, archive).exists() or getting.is_unpacked(source, archive)
        for archive in required
    )
    if required and at_hand:
        return "to unpack"
    return "to download" if source.access == "download" else WORDS[source.access]


def _row(source: Source, getting: Getting) -> tuple[str, ...]:
    exact = all(archive.exact for archive in source.archives)
    state = _state(source, getting)
    hosts = dict.fromkeys(
        urlsplit(archive.urls[0]).hostname or "" for archive in source.archives if archive.urls
    )
    place = str(getting.found[source.key]) if state == "to link" else ", ".join(hosts)
    size = format_bytes(source.num_bytes, exact=exact and bool(source.archives))
    unpacked = format_bytes(unpacked_bytes(source, getting), exact=False)
    return (source.key, state, size, unpacked, source.folder, place or "you")


def _archive_notes(source: Source) -> list[str]:
    return [
        f"{archive.name}: {missing}"
        for archive in source.archives
        if (missing := _unknown(archive))
    ]


def _unknown(archive: Archive) -> str:
    """Return what is not published of an archive; empty if its size and checksum are."""
    words = [] if archive.checksum else ["no published checksum"]
    if not archive.exact:
        words.append("only a rounded size" if archive.num_bytes else "no published size")
    return ", ".join(words)


def _existing(folder: Path) -> Path:
    folder = folder.absolute()
    while not folder.exists():
        folder = folder.parent
    return folder
