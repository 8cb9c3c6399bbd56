"""Download one archive: resumed, retried, from several addresses, and verified at the end.

urllib3 retries requests, waits as servers ask, follows redirects and notices cut transfers. Ours
are the resumption and the checksum, which tells that all pieces belong to one file.
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
"""Tries of one address, in a row; transfers that break off count as reads."""
LEAST_BYTES = 60_000
"""A transfer that breaks off after fewer bytes is no progress."""


class _UnusableError(ValueError):
    """Reason why an address is not tried again."""


def download(archive: Archive, file: Path) -> None:
    """Download an archive to a file, which appears when it is whole and verified.

    An earlier transfer goes on. DataError if every address fails, WriteError if the file cannot
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
        + "\nThe same command goes on; --from FOLDER takes the file from a folder"
    )


def _fetch(archive: Archive, address: str, partial: Path) -> None:
    """Download from one address to the partial file, until it is whole and verified."""
    left, spoiled = RETRY, False
    while True:
        before = _size(partial)
        broken = _transfer(archive, address, partial)
        if broken is not None:
            left = RETRY if _size(partial) - before >= LEAST_BYTES else left
            left = left.increment("GET", address, error=broken)
            print_line("download", f"{broken}; tried again")
            left.sleep()
            continue
        why = mismatch(archive, partial)
        if not why:
            return
        partial.unlink()
        if spoiled:
            raise _UnusableError(f"the file is another one ({why})")
        spoiled = True  # a wrong byte may be of an earlier transfer, or of another address


def _transfer(archive: Archive, address: str, partial: Path) -> HTTPError | None:
    """Append to the partial file what is missing; return why the transfer broke off, if it did."""
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
        if response.status == 416:  # nothing follows, so what is there is compared
            return None
        _require_file(archive, response, start)
        return _append(archive, response, partial, start if response.status == 206 else 0)


def _append(
    archive: Archive, response: BaseHTTPResponse, partial: Path, start: int
) -> HTTPError | None:
    """Write the body of a response to the partial file; return why it broke off, if it did."""
    most, done = archive.num_bytes if archive.exact else 2 * archive.num_bytes, start
    with (
        explain_write_errors(partial, "--data"),
        partial.open("ab" if start else "wb") as output,
        progress("download", archive.name, archive.num_bytes // MB, "MB", start // MB) as shown,
    ):
        while True:
            try:
                chunk = response.read1(MB)  # what has come, without waiting for a whole chunk
            except HTTPError as error:
                return error
            if not chunk:
                return None
            output.write(chunk)
            done += len(chunk)
            shown.add(done // MB - shown.done)
            if done > most:
                raise _UnusableError(f"it sends more than {most:,} bytes")


def _require_file(archive: Archive, response: BaseHTTPResponse, start: int) -> None:
    """Raise _UnusableError if a response is not the file, or not its rest from byte `start`.

    A server may send the whole file instead.
    """
    span = response.headers.get("Content-Range", "no range")
    if response.status not in (200, 206):
        raise _UnusableError(f"status {response.status} {response.reason}")
    if response.status == 206 and not span.startswith(f"bytes {start}-"):
        raise _UnusableError(f"it sends {span} where the rest from {start} is needed")
    length = response.length_remaining
    if archive.exact and length is not None:
        size = length + (start if response.status == 206 else 0)
        if size != archive.num_bytes:
            raise _UnusableError(f"its file has {size:,} bytes, {archive.num_bytes:,} expected")


def _pool(address: str) -> PoolManager:
    """Return connections to the server of an address, or to the environment's proxy for it."""
    parts = urlsplit(address)
    proxy = getproxies().get(parts.scheme, "")
    if not proxy or proxy_bypass(parts.netloc):
        return PoolManager()
    return ProxyManager(
        proxy, proxy_headers=make_headers(proxy_basic_auth=parse_url(proxy).auth or None)
    )


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def mismatch(archive: Archive, file: Path) -> str:
    """Return how a file differs from the published one; empty if it does not.

    Without a published size and checksum nothing can differ.
    """
    found = file.stat().st_size
    if archive.exact and found != archive.num_bytes:
        return f"{found:,} bytes, {archive.num_bytes:,} expected"
    if not archive.checksum:
        return ""
    kind, _, expected = archive.checksum.partition(":")
    print_line("verify", archive.name)
    with file.open("rb") as content:
        digest = hashlib.file_digest(content, lambda: hashlib.new(kind, usedforsecurity=False))
    computed = digest.hexdigest()
    return "" if computed == expected else f"{kind} {computed}, {expected} expected"
