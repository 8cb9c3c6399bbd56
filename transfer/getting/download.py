"""Download one archive: resumed, retried, from several addresses, and verified at the end.

torchvision's downloader starts over after a broken connection, and takes an error page for a file
until its checksum is computed; it is also imported with torch, which a login node need not load.
Neither pooch nor requests is installed. The standard library is enough for one GET with a range;
it takes proxies from the environment.
"""

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from email.message import Message
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from urllib.error import HTTPError
from urllib.parse import urlsplit
from urllib.request import Request, build_opener

from transfer.datasets.source import Archive
from transfer.getting.checksum import display_unit, mismatch
from transfer.running import stop
from transfer.running.atomic_files import explain_write_errors, write_whole
from transfer.running.console import print_line, progress

CHUNK = 1 << 20
TIMEOUT_S = 60
TRIES = 8
"""Failures in a row, none of which brought a byte, before an archive is given up."""
LONGEST_WAIT_S = 60.0
FIRST_WAIT_S = 1.0
TEMPORARY = (408, 425, 429, 500, 502, 503, 504)
"""Statuses after which the same address is tried again."""


class DownloadError(RuntimeError):
    """Error for an archive that no address gives; it names each address and the reason."""


class _RefusedError(Exception):
    """Reason why an address is not tried again."""


class _BrokenError(Exception):
    """Reason why a transfer ended early, after which it is resumed."""


@dataclass(frozen=True)
class _Answer:
    """The headers of a response that matter."""

    start: int
    """Position of the first byte in the file."""
    total: int
    """Size of the whole file; 0 if the server does not say."""


def download(archive: Archive, file: Path) -> None:
    """Download an archive to a file, which appears when it is whole and verified.

    An earlier transfer goes on. DownloadError if every address fails, WriteError if the file cannot
    be written.
    """
    partial = file.with_name(f"{file.name}.part")
    file.parent.mkdir(parents=True, exist_ok=True)
    addresses, failures = list(archive.urls), 0
    reasons: list[str] = []
    spoiled: set[str] = set()
    while addresses and failures < TRIES:
        address, before = addresses[0], _size(partial)
        try:
            _transfer(archive, address, partial)
            why = mismatch(archive, partial)
            if not why:
                _state_file(partial).unlink(missing_ok=True)
                partial.replace(file)
                return
            discard(partial)
            # a wrong byte may be of the transfer, or of another address that began the file
            again = address not in spoiled
            spoiled.add(address)
            raise (_BrokenError if again else _RefusedError)(f"the file is another one ({why})")
        except _RefusedError as error:
            reasons.append(f"{address}: {error}")
            print_line("download", f"{reasons[-1]}")
            addresses.pop(0)
        except _BrokenError as error:
            grown = _size(partial) > before
            failures = 1 if grown else failures + 1
            print_line("download", f"{address}: {error}; tried again")
            addresses = [*addresses[1:], address]
            if failures == TRIES:
                reasons.append(f"{address}: {error}")
            elif not grown:
                _wait(min(LONGEST_WAIT_S, FIRST_WAIT_S * 2 ** (failures - 1)))
    raise DownloadError(
        f"{archive.name} cannot be downloaded:\n  "
        + "\n  ".join(reasons)
        + "\nThe same command goes on; --from FOLDER takes the file from a folder"
    )


def discard(partial: Path) -> None:
    """Remove the beginning of a file, and what is known about it."""
    partial.unlink(missing_ok=True)
    _state_file(partial).unlink(missing_ok=True)


def _transfer(archive: Archive, address: str, partial: Path) -> None:
    """Append to the partial file what is missing; _BrokenError if the connection ends before."""
    start, headers = _range_headers(archive, address, partial)
    if archive.exact and start == archive.num_bytes:
        return
    with _open(address, headers, partial, start) as response:
        if response is None:
            return
        answer = _read_headers(archive, response, start)
        if not answer.start:  # before its mark is stored, so that no mark belongs to other bytes
            partial.unlink(missing_ok=True)
        _remember(partial, address, response.headers)
        total = answer.total or archive.num_bytes
        size, unit = display_unit(total)
        with (
            explain_write_errors(partial, "--data"),
            partial.open("r+b" if partial.exists() else "wb") as output,
            progress("download", archive.name, total // size, unit, answer.start // size) as shown,
        ):
            output.truncate(answer.start)
            output.seek(answer.start)
            done = answer.start
            for chunk in _chunks(response):
                output.write(chunk)
                before, done = done, done + len(chunk)
                _refuse_too_much(archive, done, answer.total)
                shown.add(done // size - before // size)
    if done < answer.total:
        raise _BrokenError(f"the connection ended after {done:,} of {answer.total:,} bytes")


def _refuse_too_much(archive: Archive, done: int, total: int) -> None:
    """Raise _RefusedError once more bytes have come than the file can have."""
    most = archive.num_bytes if archive.exact else max(total, 2 * archive.num_bytes)
    if done > most:
        raise _RefusedError(f"it sends more than {most:,} bytes")


def _chunks(response: HTTPResponse) -> Iterator[bytes]:
    while True:
        stop.exit_if_requested()
        try:
            # what has come, without waiting for a whole chunk: a slow transfer can be stopped, too
            chunk = response.read1(CHUNK)
        except (OSError, HTTPException) as error:
            raise _BrokenError(f"{type(error).__name__}: {error}") from error
        if not chunk:
            return
        yield chunk


def _range_headers(archive: Archive, address: str, partial: Path) -> tuple[int, dict[str, str]]:
    """Return where the transfer starts, and the headers that ask for the rest.

    The rest must belong to the same file: the server's own mark of it tells, or else the checksum.
    """
    start = _size(partial)
    if not start:
        return 0, {}
    state = _read_state(partial)
    mark = state.get("mark", "") if state.get("address") == address else ""
    if not mark and not archive.checksum:
        return 0, {}
    return start, {"Range": f"bytes={start}-"} | ({"If-Range": mark} if mark else {})


@contextmanager
def _open(
    address: str, headers: dict[str, str], partial: Path, start: int
) -> Iterator[HTTPResponse | None]:
    """Yield the response; None if the server says that nothing is missing."""
    if urlsplit(address).scheme not in ("http", "https"):
        raise _RefusedError(f"{address}: this is no address of the web")
    request = Request(address, headers={"User-Agent": "transfer get-data", **headers})
    try:
        response = build_opener().open(request, timeout=TIMEOUT_S)
    except HTTPError as error:
        with error:
            if error.code == 416:
                if error.headers.get("Content-Range", "") == f"bytes */{start}":
                    yield None
                    return
                discard(partial)
                raise _BrokenError(
                    f"it has nothing from byte {start} on; the file is begun again"
                ) from error
            why = f"status {error.code} {error.reason}"
            raise (_BrokenError if error.code in TEMPORARY else _RefusedError)(why) from error
    except (OSError, HTTPException) as error:
        raise _BrokenError(f"{type(error).__name__}: {error}") from error
    with response:
        yield response


def _read_headers(archive: Archive, response: HTTPResponse, start: int) -> _Answer:
    """Return the start and size that a response announces; _RefusedError if it is no such file."""
    kind = response.headers.get_content_type()
    if kind in ("text/html", "application/xhtml+xml"):
        raise _RefusedError(f"it answers with a page ({kind}), not with the file")
    length = int(response.headers.get("Content-Length") or 0)
    total = length
    if response.status == 206:
        span, _, whole = response.headers.get("Content-Range", "").partition("/")
        if not span.startswith(f"bytes {start}-"):
            raise _RefusedError(
                f"it sends {span or 'no range'} where the rest from {start} is needed"
            )
        total = int(whole) if whole.isdigit() else start + length
    elif response.status != 200:
        raise _RefusedError(f"status {response.status}")
    if archive.exact and total and total != archive.num_bytes:
        raise _RefusedError(f"its file has {total:,} bytes, {archive.num_bytes:,} expected")
    return _Answer(start if response.status == 206 else 0, total)


def _remember(partial: Path, address: str, headers: Message) -> None:
    """Store which file of which address was begun; a weak ETag does not name its bytes."""
    tag = headers.get("ETag") or ""
    mark = "" if tag.startswith("W/") else tag
    state = {"address": address, "mark": mark or headers.get("Last-Modified") or ""}
    write_whole(_state_file(partial), json.dumps(state).encode(), "--data")


def _read_state(partial: Path) -> dict[str, str]:
    try:
        state = json.loads(_state_file(partial).read_text())
    except (FileNotFoundError, ValueError):
        return {}
    return state if isinstance(state, dict) else {}


def _state_file(partial: Path) -> Path:
    return partial.with_name(f"{partial.name}.json")


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def _wait(seconds: float) -> None:
    """Wait, but not longer than a signal takes to come."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        stop.exit_if_requested()
        time.sleep(min(0.5, left))
