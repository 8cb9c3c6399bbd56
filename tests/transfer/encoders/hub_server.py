"""A local server for the requests of huggingface_hub."""

import hashlib
import json
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote

COMMIT = "0123456789abcdef0123456789abcdef01234567"
REPO = "lab/mae-small"
GATED = "lab/gated"


@contextmanager
def hub(files: Mapping[str, bytes]) -> Iterator[str]:
    """Serve the files of REPO at revision main and COMMIT.

    Yield the address for HF_ENDPOINT.
    """

    class Handler(BaseHTTPRequestHandler):
        def do_HEAD(self) -> None:
            self.answer()

        def do_GET(self) -> None:
            self.answer()

        def answer(self) -> None:
            parts = unquote(self.path.partition("?")[0]).strip("/").split("/")
            if parts[:2] == ["api", "models"]:
                repo, revision = "/".join(parts[2:4]), parts[-1]
                content: Any = {"id": repo, "sha": COMMIT, "siblings": []}
                if "tree" in parts:
                    content = [
                        {"type": "file", "path": name, "size": len(body), "oid": name}
                        for name, body in files.items()
                    ]
                body = json.dumps(content).encode()
            elif len(parts) < 5:
                return self.send(404, b"", {})
            else:
                repo, revision, name = "/".join(parts[:2]), parts[3], "/".join(parts[4:])
                body = files.get(name, b"")
                if repo == REPO and revision in ("main", COMMIT) and name not in files:
                    return self.send(404, b"", {"X-Error-Code": "EntryNotFound"})
            if repo == GATED:
                return self.send(403, b"", {"X-Error-Code": "GatedRepo"})
            if repo != REPO:
                return self.send(404, b"", {"X-Error-Code": "RepoNotFound"})
            if revision not in ("main", COMMIT):
                return self.send(404, b"", {"X-Error-Code": "RevisionNotFound"})
            etag = hashlib.sha256(body).hexdigest()
            return self.send(200, body, {"X-Repo-Commit": COMMIT, "ETag": f'"{etag}"'})

        def send(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
