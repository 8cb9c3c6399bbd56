"""A local server, small archives in the published layouts, and a data folder that expects them."""

import hashlib
import shutil
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.transfer.getting.published import pack
from tests.transfer.getting.server import Server, serve
from transfer.datasets.catalog import DATASETS
from transfer.datasets.expected import SMALL_DATA
from transfer.datasets.info import Source
from transfer.getting import download
from transfer.getting.command import all_sources

Publish = Callable[..., Source]


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A running server; nothing waits between two tries, and no proxy is asked."""
    monkeypatch.setattr(download, "RETRY", download.RETRY.new(backoff_factor=0))
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with serve() as running:
        yield running


@pytest.fixture
def data(small_data: Path, tmp_path: Path) -> Path:
    """An empty data folder that expects small sets."""
    folder = tmp_path / "data"
    folder.mkdir()
    shutil.copy(small_data / SMALL_DATA, folder / SMALL_DATA)
    return folder


@pytest.fixture
def publish(
    server: Server, small_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Publish:
    """Serves the archives of a source, and lets the catalog expect their sizes and checksums."""

    def put(key: str) -> Source:
        files = pack(key, small_data, tmp_path / "packed" / key)
        source = with_archives(all_sources()[key], files, server)
        for name, info in DATASETS.items():
            if any(own.key == key for own in info.sources):
                sources = tuple(source if own.key == key else own for own in info.sources)
                monkeypatch.setitem(DATASETS, name, replace(info, sources=sources))
        return source

    return put


def with_archives(source: Source, files: dict[str, Path], server: Server) -> Source:
    """Return the source with the sizes, checksums and addresses of small archives."""
    archives = []
    for archive in source.archives:
        content = files[archive.name].read_bytes()
        path = f"{source.key}/{archive.name}"
        server.files[path] = content
        md5 = f"md5:{hashlib.md5(content).hexdigest()}"
        archives.append(
            replace(
                archive,
                num_bytes=len(content),
                exact=True,
                checksum=md5 if archive.checksum else "",
                urls=(server.url(path),) if archive.urls else (),
            )
        )
    return replace(source, archives=tuple(archives))
