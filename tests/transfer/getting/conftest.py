"""A local server, small archives in the published layouts, and a data folder that expects them."""

import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.transfer.getting.published import Packed, pack
from tests.transfer.getting.server import Server, serve
from transfer.datasets.catalog import DATASETS
from transfer.datasets.expected import SMALL_DATA
from transfer.datasets.info import Source
from transfer.getting import download
from transfer.getting.overview import all_sources

Publish = Callable[..., Source]


@pytest.fixture
def small_sets(small_data: Path) -> Path:
    """Every layout, small. Only to be read."""
    return small_data


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A running server; nothing waits between two tries, and no proxy is asked."""
    monkeypatch.setattr(download, "RETRY", download.RETRY.new(backoff_factor=0))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with serve() as running:
        yield running


@pytest.fixture
def data(small_sets: Path, tmp_path: Path) -> Path:
    """An empty data folder that expects small sets."""
    folder = tmp_path / "data"
    folder.mkdir()
    shutil.copy(small_sets / SMALL_DATA, folder / SMALL_DATA)
    return folder


@pytest.fixture
def packed(small_sets: Path, tmp_path: Path) -> Callable[[str], Packed]:
    """Packs the small version of a source into archives as they are published."""
    return lambda key: pack(key, small_sets, tmp_path / "packed" / key)


@pytest.fixture
def publish(
    server: Server, packed: Callable[[str], Packed], monkeypatch: pytest.MonkeyPatch
) -> Publish:
    """Serves the archives of a source, and lets the catalog expect their sizes and checksums."""

    def put(key: str) -> Source:
        source = with_archives(all_sources()[key], packed(key), server)
        for name, info in DATASETS.items():
            if any(own.key == key for own in info.sources):
                sources = tuple(source if own.key == key else own for own in info.sources)
                monkeypatch.setitem(DATASETS, name, replace(info, sources=sources))
        return source

    return put


def with_archives(source: Source, packed: Packed, server: Server) -> Source:
    """Return the source with the sizes, checksums and addresses of small archives."""
    archives = []
    for archive in source.archives:
        file = packed.files[archive.name]
        path = f"{source.key}/{archive.name}"
        server.files[path] = file.read_bytes()
        archives.append(
            replace(
                archive,
                num_bytes=file.stat().st_size,
                exact=True,
                checksum=f"md5:{packed.md5(archive.name)}" if archive.checksum else "",
                urls=(server.url(path),) if archive.urls else (),
            )
        )
    return replace(source, archives=tuple(archives))
