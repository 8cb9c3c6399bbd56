"""A web server for one test: files in memory, with the faults of real servers."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass
class Server:
    """Answers of the server, and the requests that it got."""

    address: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    """Content of each path."""
    cuts: dict[str, list[int]] = field(default_factory=dict)
    """Bytes after which the next answers for a path break off, each used once."""
    hangs: dict[str, list[int]] = field(default_factory=dict)
    """Bytes after which the next answers for a path wait for `released`, each used once."""
    released: threading.Event = field(default_factory=threading.Event)
    pages: set[str] = field(default_factory=set)
    """Paths that answer with a page and status 200."""
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
        path, asked = self.path.lstrip("/"), self.headers.get("Range", "")
        self.state.requests.append((path, asked))
        if path in self.state.redirects:
            self._answer(302, b"", {"Location": self.state.redirects[path]})
        elif path in self.state.pages:
            self._answer(200, b"<html>Sorry, this moved.</html>", {})
        elif path not in self.state.files:
            self.send_error(404)
        else:
            self._send_file(path, asked)

    def _send_file(self, path: str, asked: str) -> None:
        content = self.state.files[path]
        if not asked or self.state.without_ranges:
            self._answer(200, content, {}, path)
            return
        start = int(asked.removeprefix("bytes=").removesuffix("-"))
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
        if self.state.hangs.get(path):
            self.wfile.write(content[: self.state.hangs[path].pop(0)])
            self.state.released.wait()
            self.close_connection = True
            return
        if self.state.cuts.get(path):
            self.wfile.write(content[: self.state.cuts[path].pop(0)])
            self.close_connection = True
            return
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Print nothing."""


@contextmanager
def serve() -> Iterator[Server]:
    """Yield a running server."""
    state = Server()
    handler = type("Handler", (_Handler,), {"state": state})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as http:
        state.address = f"http://127.0.0.1:{http.server_port}"
        thread = threading.Thread(target=http.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        try:
            yield state
        finally:
            state.released.set()
            http.shutdown()
