"""python -m transfer get-data: download, unpack, sort and check datasets.

It first prints an overview: state, sizes, addresses and terms of each source, and the free space.
"""

import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated
from urllib.parse import urlsplit

import tyro

from pretrain.running.command_line import nearest
from pretrain.running.console import aligned, print_line
from pretrain.running.ranges import Count
from transfer.datasets.catalog import DAMAGES, DATASETS
from transfer.datasets.check import Report, check, render
from transfer.datasets.folders import check_writable, data_folder
from transfer.datasets.info import Archive, Source, facts
from transfer.getting.sources import Getting, files_by_name, get_source


@dataclass(frozen=True, kw_only=True)
class GetData:
    """Download, unpack, sort and check datasets."""

    names: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """Keys of datasets or sources, such as aircraft dtd imagenet, or all."""
    data: Path = field(default_factory=data_folder)
    """Folder that contains all datasets. Default: $DATASETS, or ./datasets."""
    suite: str = ""
    """All datasets of one paper: jcl, co2, lorac, uniclr or looc."""
    archives: Annotated[Path | None, tyro.conf.arg(name="from")] = None
    """Folder with your own archives; nothing is downloaded."""
    plan: bool = False
    """Print sizes, addresses and terms, and exit."""
    tolerate: Count = 0
    """Bad images and annotations allowed in each dataset (missing, extra, duplicate or broken)."""

    def __call__(self) -> int:
        """Get and check the datasets; return 0 if all are complete."""
        keys, sources = select_sources(self.names, self.suite)
        local = None if self.archives is None else files_by_name(self.archives)
        getting = Getting(data=self.data, local=local, tolerate=self.tolerate)
        text = render_overview(sources, getting)
        if self.plan:
            print(text)
            return 0
        print(text, file=sys.stderr, flush=True)
        check_writable(self.data, "--data")
        reports, failed = get_all(keys, sources, getting)
        if reports:
            print(render(reports))
        for line in failed:
            print(line, file=sys.stderr)
        return int(bool(failed) or not all(report.fit(self.tolerate) for report in reports))


def get_all(
    keys: Sequence[str], sources: Sequence[Source], getting: Getting
) -> tuple[list[Report], list[str]]:
    """Get all sources and check all datasets; return checks and failures.

    There is one line per failure. A failure does not stop the other datasets.
    """
    reports: dict[str, Report] = {}
    failed: list[str] = []
    for source in sources:
        try:
            report = get_source(source, getting)
        except DAMAGES as error:
            reason = str(error).removeprefix(f"{source.key}: ")
            failed.append(f"{source.key} is missing: {reason}")
            print_line("get-data", f"{source.key} failed; the reason is printed at the end")
            continue
        if report is not None:
            reports[report.key] = report
    for key in keys:
        if key not in reports:
            reports[key] = check(key, getting.data, decode=False)
            if reports[key].exists and not reports[key].fit(getting.tolerate):
                failed.append(f"{key} existed and is incomplete: move it away, or use --tolerate")
    return list(reports.values()), failed


HEADER = ("source", "state", "download", "folder", "from")
ACCESS_STATES = {
    "registration": "needs a registration",
    "password": "has a password",
    "no home": "has no public address",
}


def format_bytes(num_bytes: int, *, exact: bool = True) -> str:
    """Return a size with three digits, such as "171 MB".

    A tilde marks an estimated size; an estimate of 0 is unknown.
    """
    if not num_bytes and not exact:
        return "unknown"
    size, unit = float(num_bytes), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if size < 999.5:
            break
        size, unit = size / 1000, larger
    return f"{'' if exact else '~'}{size:.3g} {unit}"


def render_overview(sources: Sequence[Source], getting: Getting) -> str:
    """Return a table of the sources, their terms and the total."""
    lines = [*aligned([HEADER, *(_row(source, getting) for source in sources)]), ""]
    for source in sources:
        lines.append(f"{source.key}: terms: {source.terms}, {source.terms_url}")
        names = [archive.name for archive in source.archives if not archive.checksum]
        lines += [f"  {name}: no published checksum" for name in names]
        if source.advice and not source.exists_in(getting.data):
            lines.append(f"  {source.advice}")
            lines += [f"  {copy} Never downloaded by us." for copy in source.hub_copies]
    return "\n".join([*lines, "", summary(sources, getting)])


def summary(sources: Sequence[Source], getting: Getting) -> str:
    """Return one line: size of all downloads, what the user must get, and the free space."""
    absent = [source for source in sources if not source.exists_in(getting.data)]
    downloads = [
        archive
        for source in absent
        if source.access == "download" and getting.local is None
        for archive in getting.missing(source)
    ]
    by_hand = [source for source in absent if source.access != "download"]
    parts = []
    if downloads:
        parts.append(f"{_size(downloads)} to download, and as much again for unpacked files")
    if with_archives := [source.key for source in by_hand if getting.missing(source)]:
        keys = ", ".join(with_archives)
        parts.append(f"get the archives of {keys} yourself, and pass --from FOLDER")
    if without_archives := [source.key for source in by_hand if not source.archives]:
        parts.append(f"make the folder of {', '.join(without_archives)} yourself")
    free = f"{format_bytes(free_space(getting.data))} free at {getting.data}"
    return "; ".join([*(parts or ["nothing to download"]), free])


def free_space(data: Path) -> int:
    """Return the free bytes at a data folder, which may not exist."""
    folder = data.absolute()
    return shutil.disk_usage(next(f for f in (folder, *folder.parents) if f.exists())).free


def _size(archives: Sequence[Archive]) -> str:
    exact = all(archive.exact for archive in archives)
    return format_bytes(sum(archive.num_bytes for archive in archives), exact=exact)


def _row(source: Source, getting: Getting) -> tuple[str, ...]:
    urls = [archive.urls[0] for archive in source.archives if archive.urls]
    hosts = ", ".join(dict.fromkeys(urlsplit(url).hostname or "" for url in urls)) or "you"
    if source.exists_in(getting.data):
        state = "there"
    elif source.archives and not getting.missing(source):
        state = "to unpack"
    else:
        state = ACCESS_STATES.get(source.access, "to download")
    size = _size(source.archives) if source.archives else "unknown"
    return source.key, state, size, source.folder, hosts


SUITES: Mapping[str, tuple[str, ...]] = facts()["suites"]
"""Datasets of each paper's tasks."""


def sources_of(keys: Iterable[str]) -> tuple[Source, ...]:
    """Return the sources of datasets, without repetition."""
    by_key = {source.key: source for key in keys for source in DATASETS[key].sources}
    return tuple(by_key.values())


def all_sources() -> dict[str, Source]:
    """Return every source by its key, in the order of the catalog."""
    return {source.key: source for source in sources_of(DATASETS)}


def select_sources(names: Sequence[str], suite: str) -> tuple[tuple[str, ...], tuple[Source, ...]]:
    """Return the datasets to check and the sources to get, without repetition.

    Raises ValueError for an unknown name.
    """
    if not (names or suite):
        raise ValueError(
            f"no dataset given: pass names, such as cifar10 dtd, or all, or --suite "
            f"({', '.join(SUITES)})"
        )
    if suite and suite not in SUITES:
        raise ValueError(f"--suite {suite}: expected one of {', '.join(SUITES)}")
    downloadable = {key: info.sources for key, info in DATASETS.items() if info.sources}
    choices = {key: (source,) for key, source in all_sources().items()} | downloadable
    requested = list(downloadable) if "all" in names else [*names, *SUITES.get(suite, ())]
    keys: list[str] = []
    for name in requested:
        if name not in choices:
            raise ValueError(
                f"unknown dataset {name!r}, or one that cannot be downloaded. Did you mean "
                f"{nearest(name, choices)}?"
            )
        keys += [name] if name in downloadable else choices[name][0].checked_as[:1]
    selected = {source.key: source for name in requested for source in choices[name]}
    return tuple(dict.fromkeys(keys)), tuple(selected.values())
