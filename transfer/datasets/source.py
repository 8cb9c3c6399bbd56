"""The origin of a data set's files: archives, addresses, checksums, terms and layout.

A source is one folder below the data folder that is obtained as a whole. Several sets may read it:
both ImageNet-1k and ImageNet-100 read `imagenet/`. A size or checksum that nobody published is
left out here, and `get-data` says so.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

Access = Literal["download", "registration", "password", "no home"]


@dataclass(frozen=True, kw_only=True)
class Archive:
    """One published file: a tar or zip archive, or a file that is used as it is."""

    name: str
    """Usual name of the file."""
    urls: tuple[str, ...] = ()
    """Addresses, tried in this order; none for what each user must fetch."""
    num_bytes: int
    """Size of the file."""
    exact: bool = True
    """False: only a rounded size is published, which serves the plan alone."""
    checksum: str = ""
    """md5:HEX or sha256:HEX as published; an archive with addresses has one."""
    other_names: tuple[str, ...] = ()
    """Further usual names of the file."""
    into: str = ""
    """Folder, below the one that all archives are unpacked to, for the content."""
    nested: str = ""
    """Pattern of archives inside it; each is unpacked to a folder of its name."""
    optional: bool = False
    """True: with --from, the set is usable without it."""

    @property
    def names(self) -> tuple[str, ...]:
        """Return all usual names of the file."""
        return (self.name, *self.other_names)


@dataclass(frozen=True, kw_only=True)
class Part:
    """A file or folder that a set consists of, by which the set is recognized."""

    path: str
    """Place below the source's folder."""
    elsewhere: tuple[str, ...] = ()
    """Other places where archives and other suites have it, below the set's folder."""
    holds: str = ""
    """Pattern of a file or folder that must be in it; empty for a file."""
    optional: bool = False

    def find(self, root: Path) -> str | None:
        """Return the place of this part below a folder; None if it is not there."""
        places = (self.path, *self.elsewhere)
        return next((place for place in places if self._is_at(root / place)), None)

    def _is_at(self, place: Path) -> bool:
        if not self.holds:
            return place.is_file()
        return place.is_dir() and next(place.glob(self.holds), None) is not None


@dataclass(frozen=True, kw_only=True)
class Source:
    """One folder of files: how to get them, and how to recognize them."""

    key: str
    """Name in `get-data` and of the folder of its archives."""
    folder: str
    """Folder below the data folder, which appears when it is complete."""
    archives: tuple[Archive, ...]
    terms: str
    """License, or the publisher's words on the terms, in one line; "unknown" otherwise."""
    terms_url: str
    """Page that states the terms."""
    parts: tuple[Part, ...]
    variants: tuple[tuple[Archive, ...], ...] = ()
    """Other archives of the same files, which a user may have in place of `archives`."""
    access: Access = "download"
    advice: str = ""
    """Instructions where the archives cannot be downloaded by everybody, or slowly."""
    recognize: Callable[[Path], bool] | None = None
    """Further test of a folder that has all parts."""
    arrange: Callable[[Path], None] | None = None
    """Sorts the unpacked files before the parts are looked for; may be interrupted and repeated."""
    link: Callable[[Path, Mapping[str, str], Path], bool] | None = None
    """Gets a found set, the places of its parts and the folder to write; writes links there if its
    files have another order, else returns False."""
    checked_as: tuple[str, ...] = ()
    """Data sets one of whose checks tells that the folder is whole; none: it is taken for whole."""
    finish: Callable[[Path], object] | None = None
    """Last step on the data folder, such as a conversion; may be interrupted and repeated."""
    unneeded_with: str = ""
    """Path below the data folder that makes the source unnecessary."""

    @property
    def num_bytes(self) -> int:
        """Return the size of all archives."""
        return sum(archive.num_bytes for archive in self.archives)

    def is_there(self, data: Path) -> bool:
        """Return whether the folder exists, or what makes it unnecessary."""
        replaced = self.unneeded_with and (data / self.unneeded_with).exists()
        return bool(replaced) or (data / self.folder).exists()

    def places_in(self, root: Path) -> dict[str, str] | None:
        """Return the place below a folder of each part; None if the folder is not this set."""
        places = {}
        for part in self.parts:
            place = part.find(root)
            if place is not None:
                places[part.path] = place
            elif not part.optional:
                return None
        return places if self.recognize is None or self.recognize(root) else None


def first_lines_match(file: Path, pattern: str, count: int = 3) -> bool:
    """Return whether the first lines of a file exist and each begin with a pattern."""
    lines = list(_first_lines(file, count)) if file.is_file() else []
    return bool(lines) and all(re.match(pattern, line) for line in lines)


def _first_lines(file: Path, count: int) -> Iterator[str]:
    with file.open(errors="replace") as lines:
        yield from islice(lines, count)
