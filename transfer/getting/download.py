"""Download one archive: resumed, retried, from several addresses, and verified.

urllib3 retries requests, waits as servers ask, follows redirects and detects interrupted transfers.
This module adds resumption and the checksum, which shows that all pieces belong to one file.
"""

import hashlib
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from urllib3 import BaseHTTPResponse, PoolManager, ProxyManager, Retry, Timeout, make_headers
from urllib3.exceptions import HTTPError, MaxRetryError
from urllib3.util import parse_url

from pretrain.running.atomic_files import explain_write_errors
from pretrain.running.console import print_line, progress
from transfer.datasets.expected import DataError
from transfer.datasets.info import Archive

MB = 1_000_000
TIMEOUT = Timeout(connect=10, read=60)
RETRY = Retry(
    total=None,
    connect=2,
    read=5,
    redirect=10,
    status=5,
    other=5,
    status_forcelist=(408, 425, 429, 500, 502, 503, 504),
    backoff_factor=1,
    backoff_max=60,
    retry_after_max=600,
    raise_on_status=False,
)
"""Consecutive tries of one address; an interrupted transfer counts as a read."""
MIN_PROGRESS_BYTES = 60_000
"""Minimum number of bytes that count as progress of an interrupted transfer."""


class _UnusableError(ValueError):
    """Reason not to try an address again."""


def download(archive: Archive, file: Path) -> None:
    """Download an archive to a file, which appears when it is verified.

    An earlier transfer is resumed. DataError if every address fails, WriteError if the file cannot
    be written.
    """
    partial = file.with_name(f"{file.name}.part")
    file.parent.mkdir(parents=True, exist_ok=True)
    reasons = []
    for address in archive.urls:
        try:
            _fetch(archive, address, partial)
        except (HTTPError, ValueError) as error:  # a malformed redirect is a ValueError of urllib
            cause = error.reason if isinstance(error, MaxRetryError) else error
            reasons.append(f"{address}: {cause}")
            print_line("download", reasons[-1])
            continue
        partial.replace(file)
        return
    raise DataError(
        f"{archive.name} cannot be downloaded:\n  "
        + "\n  ".join(reasons)
        + "\nRun the same command to resume; --from FOLDER takes the file from a folder"
    )


def _fetch(archive: Archive, address: str, partial: Path) -> None:
    """Download from one address until the partial file is complete and verified."""
    retries, was_wrong = RETRY, False
    while True:
        old_size = _size(partial)
        error = _transfer(archive, address, partial)
        if error is not None:
            retries = RETRY if _size(partial) - old_size >= MIN_PROGRESS_BYTES else retries
            retries = retries.increment("GET", address, error=error)
            print_line("download", f"{error}; trying again")
            retries.sleep()
            continue
        difference = mismatch(archive, partial)
        if not difference:
            return
        partial.unlink()
        if was_wrong:
            raise _UnusableError(f"the server has another file ({difference})")
        was_wrong = True  # bytes of an earlier transfer or of another address may be wrong


def _transfer(archive: Archive, address: str, partial: Path) -> HTTPError | None:
    """Append the missing bytes to the partial file.

    Returns the error that interrupted the transfer, or None.
    """
    start = _size(partial) if archive.checksum else 0
    if archive.exact and start == archive.num_bytes:
        return None
    headers = {"User-Agent": "transfer get-data"}
    if start:
        headers["Range"] = f"bytes={start}-"
    response = _pool(address).request(
        "GET",
        address,
        headers=headers,
        retries=RETRY,
        timeout=TIMEOUT,
        preload_content=False,
        decode_content=False,
    )
    with closing(response):
        if response.status == 416:  # no bytes are missing; the caller verifies the file
            return None
        _require_file(archive, response, start)
        return _append(archive, response, partial, start if response.status == 206 else 0)


def _append(
    archive: Archive, response: BaseHTTPResponse, partial: Path, start: int
) -> HTTPError | None:
    """Write the body of a response to the partial file.

    Returns the error that interrupted the transfer, or None.
    """
    max_bytes, num_bytes = archive.num_bytes if archive.exact else 2 * archive.num_bytes, start
    with (
        explain_write_errors(partial, "--data"),
        partial.open("ab" if start else "wb") as output,
        progress("download", archive.name, archive.num_bytes // MB, "MB", start // MB) as bar,
    ):
        while True:
            try:
                chunk = response.read1(MB)  # available bytes, without waiting for a full chunk
            except HTTPError as error:
                return error
            if not chunk:
                return None
            output.write(chunk)
            num_bytes += len(chunk)
            bar.add(num_bytes // MB - bar.done)
            if num_bytes > max_bytes:
                raise _UnusableError(f"the server sent more than the expected {max_bytes:,} bytes")


def _require_file(archive: Archive, response: BaseHTTPResponse, start: int) -> None:
    """Raise _UnusableError unless a response is the file from byte `start` on.

    A server may send the complete file instead.
    """
    span = response.headers.get("Content-Range", "no range")
    if response.status not in (200, 206):
        raise _UnusableError(f"status {response.status} {response.reason}")
    if response.status == 206 and not span.startswith(f"bytes {start}-"):
        raise _UnusableError(f"the server sent {span}, expected the bytes from {start} on")
    length = response.length_remaining
    if archive.exact and length is not None:
        size = length + (start if response.status == 206 else 0)
        if size != archive.num_bytes:
            raise _UnusableError(f"the file has {size:,} bytes, {archive.num_bytes:,} expected")


def _pool(address: str) -> PoolManager:
    """Return connections to an address's server, or to the environment's proxy."""
    url = urlsplit(address)
    proxy = getproxies().get(url.scheme, "")
    if not proxy or proxy_bypass(url.netloc):
        return PoolManager()
    return ProxyManager(
        proxy, proxy_headers=make_headers(proxy_basic_auth=parse_url(proxy).auth or None)
    )


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def mismatch(archive: Archive, file: Path) -> str:
    """Return how a file differs from the published one; empty if equal.

    A file without published size and checksum counts as equal.
    """
    num_bytes = file.stat().st_size
    if archive.exact and num_bytes != archive.num_bytes:
        return f"{num_bytes:,} bytes, {archive.num_bytes:,} expected"
    if not archive.checksum:
        return ""
    kind, _, expected = archive.checksum.partition(":")
    print_line("verify", archive.name)
    with file.open("rb") as content:
        digest = hashlib.file_digest(content, lambda: hashlib.new(kind, usedforsecurity=False))
    computed = digest.hexdigest()
    return "" if computed == expected else f"{kind} {computed}, {expected} expected"
