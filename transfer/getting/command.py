"""python -m transfer get-data: download, unpack, sort and check data sets, or link them."""

import shlex
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import tyro

from pretrain.running.console import print_line
from transfer.datasets.catalog import DAMAGES
from transfer.datasets.check import Report, check, render
from transfer.datasets.expected import DataError
from transfer.datasets.folders import check_writable, data_folder
from transfer.datasets.info import Source
from transfer.getting import overview
from transfer.getting.assemble import Getting, get_source
from transfer.getting.overview import SUITES, all_sources, wanted
from transfer.getting.recognize import files_by_name, find_all, local_archives, with_local_variant


@dataclass(frozen=True, kw_only=True)
class GetData:
    """Download, unpack, sort and check data sets, or link those that lie elsewhere."""

    names: Annotated[tuple[str, ...], tyro.conf.Positional] = ()
    """Keys of data sets or sources, such as aircraft dtd imagenet, or all."""
    data: Path = field(default_factory=data_folder)
    """Folder of all data sets; $DATASETS or ./datasets."""
    suite: str = ""
    """All sets of one paper: jcl, co2, lorac, uniclr or looc."""
    archives: Annotated[Path | None, tyro.conf.arg(name="from")] = None
    """Folder with archives that you have; nothing is downloaded."""
    link: Path | None = None
    """Folder at or below which sets lie; they are recognized by their content and linked."""
    find: Path | None = None
    """Folder below which known sets are searched; only prints the commands that link them."""
    plan: bool = False
    """Only print sizes, addresses and terms."""
    remove_archives: bool = False
    """Remove downloaded archives once they are unpacked."""
    tolerate: int = 0
    """Missing, surplus or unreadable images, and broken annotations, that a set may have."""

    def __call__(self) -> int:
        """Get the sets and print their check; return 0 if all of them are there and whole."""
        if self.find is not None:
            return self.print_found(self.find)
        keys, sources, getting = self.request()
        text = overview.render(sources, getting)
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

    def request(self) -> tuple[Sequence[str], Sequence[Source], Getting]:
        """Return the sets and sources, and how they are got: own files, by links, or downloaded.

        With --link alone, every set that is found there is asked for.
        """
        files = None if self.archives is None else files_by_name(self.archives)
        names = self.names
        if not (names or self.suite):
            if self.link is None:
                raise ValueError(
                    "name data sets, such as cifar10 dtd, or all; or give --suite "
                    f"({', '.join(SUITES)}), --link FOLDER, or --find ROOT"
                )
            names = tuple(known_sets(self.link, "--link"))
        keys, sources = wanted(names, self.suite)
        local = {}
        if files is not None:
            sources = tuple(with_local_variant(source, files) for source in sources)
            local = {source.key: local_archives(source, files) for source in sources}
        getting = Getting(
            data=self.data,
            local=local,
            found={} if self.link is None else self.find_to_link(sources, self.link),
            only_local=files is not None,
            remove_archives=self.remove_archives,
            tolerate=self.tolerate,
        )
        return keys, sources, getting

    def find_to_link(self, sources: Sequence[Source], folder: Path) -> dict[str, Path]:
        """Return the folder of each source; DataError if one is not recognized there."""
        found = known_sets(folder, "--link", sources)
        absent = [
            source
            for source in sources
            if source.key not in found
            and not source.is_there(self.data)
            and not any(_replaces(source, other, found.get(other.key)) for other in sources)
        ]
        if absent or not found:
            wants = "; ".join(f"{s.key}: {', '.join(p.path for p in s.parts)}" for s in absent)
            raise DataError(
                f"--link {folder}: not recognized there ({wants or 'no known set'}); a set is a "
                "folder that holds all these"
            )
        return found

    def print_found(self, root: Path) -> int:
        """Print a command for each known set below a folder."""
        for key, folder in known_sets(root, "--find").items():
            state = "  # is there" if all_sources()[key].is_there(self.data) else ""
            words = ["get-data", key, "--link", str(folder), "--data", str(self.data)]
            print(f"python -m transfer {shlex.join(words)}{state}")
        return 0


def known_sets(folder: Path, option: str, sources: Sequence[Source] = ()) -> dict[str, Path]:
    """Return the folder of each of these sources, or of all, that lies at or below a folder."""
    if not folder.is_dir():
        raise DataError(f"{option} {folder}: this is no folder")
    return find_all(sources or tuple(all_sources().values()), folder)


def _replaces(source: Source, other: Source, found: Path | None) -> bool:
    """Return whether the folder of another set that was found makes a source unnecessary."""
    place = Path(source.unneeded_with)
    if found is None or not place.is_relative_to(other.folder):
        return False
    return (found / place.relative_to(other.folder)).exists()


def get_all(
    keys: Sequence[str], sources: Sequence[Source], getting: Getting
) -> tuple[list[Report], list[str]]:
    """Get every source, then check every set; return the checks and a line per failure.

    One set that cannot be got does not stop the others.
    """
    reports: dict[str, Report] = {}
    failed: list[str] = []
    for source in sources:
        try:
            report = get_source(source, getting)
        except DAMAGES as error:
            why = str(error).removeprefix(f"{source.key}: ")
            failed.append(f"{source.key} is not there: {why}")
            print_line("get-data", f"{source.key} failed, the reason comes last")
            continue
        if report is not None:
            reports[report.key] = report
    for key in keys:
        if key not in reports:
            reports[key] = check(key, getting.data, decode=False)
            if reports[key].found and not reports[key].fit(getting.tolerate):
                failed.append(f"{key} was there and is not whole; move it away, or use --tolerate")
    return list(reports.values()), failed
