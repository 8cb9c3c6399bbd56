"""The overview of what would be got: state, sizes, addresses and terms, and the free space."""

import shutil
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

from pretrain.running.command_line import nearest
from transfer.datasets.catalog import DATASETS
from transfer.datasets.check import table
from transfer.datasets.info import Archive, Source, facts
from transfer.getting.assemble import Getting

HEADER = ("source", "state", "download", "folder", "from")
WORDS = {
    "registration": "needs a registration",
    "password": "has a password",
    "no home": "has no public address",
}


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
    return f"{'' if exact else '~'}{size:.3g} {unit}"


def render(sources: Sequence[Source], getting: Getting) -> str:
    """Return a table of the sources, a line on the terms of each, and the sum."""
    lines = [*table([HEADER, *(_row(source, getting) for source in sources)]), ""]
    for source in sources:
        lines.append(f"{source.key}: terms: {source.terms}, {source.terms_url}")
        names = [archive.name for archive in source.archives if not archive.checksum]
        lines += [f"  {name}: no published checksum" for name in names]
        if source.advice and not source.is_there(getting.data):
            lines.append(f"  {source.advice}")
    return "\n".join([*lines, "", summary(sources, getting)])


def summary(sources: Sequence[Source], getting: Getting) -> str:
    """Return one line with the sum of all sizes and the free space."""
    downloads = [archive for source in sources for archive in getting.to_download(source)]
    free = f"{format_bytes(free_space(getting.data))} free at {getting.data}"
    return f"{_size(downloads)} to download, as much again once unpacked; {free}"


def free_space(data: Path) -> int:
    """Return the free bytes on the disk of a data folder, which need not exist yet."""
    folder = data.absolute()
    while not folder.exists():
        folder = folder.parent
    return shutil.disk_usage(folder).free


def _size(archives: Sequence[Archive]) -> str:
    exact = all(archive.exact for archive in archives)
    return format_bytes(sum(archive.num_bytes for archive in archives), exact=exact)


def _row(source: Source, getting: Getting) -> tuple[str, ...]:
    urls = [archive.urls[0] for archive in source.archives if archive.urls]
    place = ", ".join(dict.fromkeys(urlsplit(url).hostname or "" for url in urls)) or "you"
    absent = [archive for archive in getting.absent(source) if not archive.optional]
    if source.is_there(getting.data):
        state = "there"
    elif source.key in getting.found:
        state, place = "to link", str(getting.found[source.key])
    elif source.archives and not absent:
        state = "to unpack"
    else:
        state = WORDS.get(source.access, "to download")
    size = _size(source.archives) if source.archives else "unknown"
    return source.key, state, size, source.folder, place


SUITES: Mapping[str, tuple[str, ...]] = facts()["suites"]
"""Data sets of each paper's tasks. The papers' tasks are known to `benchmarks`, which this room may
not import; a test compares the two."""


def sources_of(keys: Iterable[str]) -> tuple[Source, ...]:
    """Return the sources of data sets, each once."""
    by_key = {source.key: source for key in keys for source in DATASETS[key].sources}
    return tuple(by_key.values())


def all_sources() -> dict[str, Source]:
    """Return every source by its key, in the order of the catalog."""
    return {source.key: source for source in sources_of(DATASETS)}


def wanted(names: Sequence[str], suite: str) -> tuple[tuple[str, ...], tuple[Source, ...]]:
    """Return the data sets to check at the end and the sources to get, each once.

    ValueError for a name that means nothing.
    """
    if suite and suite not in SUITES:
        raise ValueError(
            f"--suite {suite}: expected one of {', '.join(SUITES)}; of another paper, "
            f"run_all.py --suite {suite} --plan names the sets"
        )
    available = [key for key, info in DATASETS.items() if info.sources]
    if "all" in names:
        names, suite = available, ""
    sources, of_keys = all_sources(), dict[str, Source]()
    keys: list[str] = []
    for name in (*names, *SUITES.get(suite, ())):
        if name in available:
            keys.append(name)
            of_keys |= {source.key: source for source in DATASETS[name].sources}
        elif name in DATASETS:
            raise ValueError(f"{name} cannot be downloaded: {DATASETS[name].how_to_get}")
        elif name in sources:
            of_keys[name] = sources[name]
            keys += sources[name].checked_as[:1]
        else:
            known = dict.fromkeys((*available, *sources))
            raise ValueError(f"no data set {name!r}; did you mean {nearest(name, known)}?")
    return tuple(dict.fromkeys(keys)), tuple(of_keys.values())
