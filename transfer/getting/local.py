"""Archives that the user has, found by their usual names below a folder."""

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from transfer.datasets.images import DataError
from transfer.datasets.source import Archive, Source

DEPTH = 3
"""Levels of folders below the user's that are searched."""


def files_by_name(folder: Path) -> dict[str, list[Path]]:
    """Return the files below a folder by name; hidden folders are left out."""
    if not folder.is_dir():
        raise DataError(f"--from {folder}: this is no folder; give the one that holds the archives")
    files: dict[str, list[Path]] = {}
    for above, folders, names in os.walk(folder):
        depth = len(Path(above).relative_to(folder).parts)
        folders[:] = sorted(f for f in folders if not f.startswith(".")) if depth < DEPTH else []
        for name in names:
            files.setdefault(name, []).append(Path(above) / name)
    return files


def with_local_variant(source: Source, files: Mapping[str, list[Path]]) -> Source:
    """Return the source with the first of its variants that the user has whole, else as it is."""
    for archives in (source.archives, *source.variants):
        required = [archive for archive in archives if not archive.optional]
        if required and all(any(name in files for name in a.names) for a in required):
            return replace(source, archives=archives)
    return source


def local_archives(source: Source, files: Mapping[str, list[Path]]) -> dict[str, Path]:
    """Return the user's file for each archive of a source that is among the files, by its name.

    Of several files with one name, that of the published size is taken: `images.tar.gz` may be of
    another set. DataError if all have another size.
    """
    chosen = {}
    for archive in source.archives:
        candidates = [file for name in archive.names for file in files.get(name, ())]
        fitting = [file for file in candidates if _may_be(archive, file)]
        if candidates and not fitting:
            raise DataError(
                f"{candidates[0]}: {candidates[0].stat().st_size:,} bytes, {archive.num_bytes:,} "
                f"expected of {source.key}; it is cut off or another file, get it again"
            )
        if fitting:
            chosen[archive.name] = fitting[0]
    return chosen


def _may_be(archive: Archive, file: Path) -> bool:
    return not archive.exact or file.stat().st_size == archive.num_bytes
