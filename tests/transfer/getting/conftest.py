"""A local server with realistic faults, and small published archives."""

import hashlib
import shutil
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.transfer.getting.published import pack
from transfer.datasets.catalog import DATASETS
from transfer.datasets.expected import SMALL_DATA
from transfer.datasets.info import Source
from transfer.getting import download
from transfer.getting.command import all_sources

Publish = Callable[..., Source]


@dataclass
class Server:
    """Answers of the server, and the requests that it got."""

    address: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    """Content of each path."""
    cuts: dict[str, list[int]] = field(default_factory=dict)
    """Bytes after which the next responses break off, used once each."""
    released: threading.Event = field(default_factory=threading.Event)
    """Event that an answer which breaks off waits for before it does."""
    redirects: dict[str, str] = field(default_factory=dict)
    """Place to which a path redirects."""
    without_ranges: bool = False
    """Every answer has the whole file."""
    requests: list[tuple[str, str]] = field(default_factory=list)
    """Path and range of each request."""

    def url(self, path: str) -> str:
        """Return the address of a path."""
        return f"{self.address}/{path}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    state: Server

    def do_GET(self) -> None:
        path, requested = self.path.lstrip("/"), self.headers.get("Range", "")
        self.state.requests.append((path, requested))
        if path in self.state.redirects:
            self._answer(302, b"", {"Location": self.state.redirects[path]})
        elif path not in self.state.files:
            self.send_error(404)
        else:
            self._send_file(path, requested)

    def _send_file(self, path: str, requested: str) -> None:
        content = self.state.files[path]
        if not requested or self.state.without_ranges:
            self._answer(200, content, {}, path)
            return
        start = int(requested.removeprefix("bytes=").removesuffix("-"))
        if start >= len(content):
            self._answer(416, b"", {"Content-Range": f"bytes */{len(content)}"})
            return
        span = f"bytes {start}-{len(content) - 1}/{len(content)}"
        self._answer(206, content[start:], {"Content-Range": span}, path)

    def _answer(self, status: int, content: bytes, headers: dict[str, str], path: str = "") -> None:
        self.send_response(status)
        sizes = {"Content-Length": str(len(content))}
        for name, value in (sizes | headers).items():
            self.send_header(name, value)
        self.end_headers()
        if self.state.cuts.get(path):
            self.wfile.write(content[: self.state.cuts[path].pop(0)])
            self.state.released.wait()
            self.close_connection = True
            return
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """A running server.

    Nothing waits between two tries, and no proxy is asked.
    """
    monkeypatch.setattr(download, "MAX_WAIT_S", 0)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    state = Server()
    state.released.set()
    handler = type("Handler", (_Handler,), {"state": state})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as http:
        state.address = f"http://127.0.0.1:{http.server_port}"
        threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True).start()
        yield state
        state.released.set()
        http.shutdown()


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
    """Serve a source's archives with catalog entries for their checksums."""

    def put(key: str) -> Source:
        files = pack(key, small_data, tmp_path / "packed" / key)
        source = with_archives(all_sources()[key], files, server)
        for name, info in DATASETS.items():
            if any(ours.key == key for ours in info.sources):
                sources = tuple(source if ours.key == key else ours for ours in info.sources)
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
