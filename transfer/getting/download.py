"""Download one archive: resumed, retried, from several addresses, and verified at the end.

urllib3 retries requests, waits as servers ask, follows redirects and notices cut transfers. Ours
are the resumption, the checksum, which tells that all pieces belong to one file, and the least
rate: a server that sends a byte each second never reaches a timeout.
"""

import hashlib
import os
import time
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from urllib3 import BaseHTTPResponse, PoolManager, ProxyManager, Retry, Timeout, make_headers
from urllib3.exceptions import HTTPError, MaxRetryError, ProtocolError
from urllib3.util import parse_url

from pretrain.running.atomic_files import explain_write_errors
from pretrain.running.console import print_line, progress
from transfer.datasets.catalog import DATASETS, expected_sizes
from transfer.datasets.info import Archive

CHUNK = 1 << 20
TIMEOUT = Timeout(connect=10, read=60)


class _Retry(Retry):
    """Retry that says how long it waits: a server may ask for minutes."""

    def sleep(self, response: BaseHTTPResponse | None = None) -> None:
        wait_s = self.get_retry_after(response) if response is not None else None
        wait_s = wait_s or self.get_backoff_time()
        what = self.history[-1].error or f"status {self.history[-1].status}"
        print_line("download", f"{what}; tried again in {wait_s:.0f} s")
        time.sleep(wait_s)


RETRY = _Retry(
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
RATE_PERIOD_S = 60.0
LEAST_BYTES = 60_000
"""Fewer bytes in a period are a broken transfer; a try that brings fewer is no progress."""


class DownloadError(RuntimeError):
    """Error for an archive that no address gives; it names each address and the reason."""


class _UnusableError(ValueError):
    """Reason why an address is not tried again."""


def download(archive: Archive, file: Path) -> None:
    """Download an archive to a file, which appears when it is whole and verified.

    An earlier transfer goes on. DownloadError if every address fails, WriteError if the file cannot
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
    raise DownloadError(
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
    response = _pool(address).request(
        "GET",
        address,
        headers={
            "User-Agent": "transfer get-data",
            **({"Range": f"bytes={start}-"} if start else {}),
        },
        retries=RETRY,
        timeout=TIMEOUT,
        preload_content=False,
        decode_content=False,
    )
    try:
        if response.status == 416:  # nothing follows, so what is there is compared
            return None
        return _append(archive, response, partial, _first_byte(archive, response, start))
    finally:
        response.close()


def _append(
    archive: Archive, response: BaseHTTPResponse, partial: Path, start: int
) -> HTTPError | None:
    """Write the body of a response to the partial file; return why it broke off, if it did."""
    most = archive.num_bytes if archive.exact else 2 * archive.num_bytes
    size, unit = display_unit(archive.num_bytes)
    done = since_done = start
    since = time.monotonic()
    with (
        explain_write_errors(partial, "--data"),
        partial.open("r+b" if start else "wb") as output,
        progress("download", archive.name, archive.num_bytes // size, unit, done // size) as shown,
    ):
        output.seek(start)
        while True:
            try:
                chunk = response.read1(CHUNK)  # what has come, without waiting for a whole chunk
            except HTTPError as error:
                return error
            if not chunk:
                return None
            output.write(chunk)
            before, done = done, done + len(chunk)
            shown.add(done // size - before // size)
            if done > most:
                raise _UnusableError(f"it sends more than {most:,} bytes")
            if time.monotonic() - since > RATE_PERIOD_S:
                if done - since_done < LEAST_BYTES:
                    return ProtocolError(f"{done - since_done:,} bytes in {RATE_PERIOD_S:.0f} s")
                since, since_done = time.monotonic(), done


def _first_byte(archive: Archive, response: BaseHTTPResponse, start: int) -> int:
    """Return the position in the file of a response's body; _UnusableError if it is another file.

    start: the first byte that was asked for; a server may send the whole file instead.
    """
    kind = response.headers.get("Content-Type", "").partition(";")[0].strip().lower()
    span = response.headers.get("Content-Range", "no range")
    if response.status not in (200, 206):
        raise _UnusableError(f"status {response.status} {response.reason}")
    if kind in ("text/html", "application/xhtml+xml"):
        raise _UnusableError(f"it answers with a page ({kind}), not with the file")
    if response.status == 206 and not span.startswith(f"bytes {start}-"):
        raise _UnusableError(f"it sends {span} where the rest from {start} is needed")
    first = start if response.status == 206 else 0
    length = response.length_remaining
    if archive.exact and length is not None and first + length != archive.num_bytes:
        raise _UnusableError(
            f"its file has {first + length:,} bytes, {archive.num_bytes:,} expected"
        )
    return first


def _pool(address: str) -> PoolManager:
    """Return connections to the server of an address, or to the environment's proxy for it."""
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https"):
        raise _UnusableError("this is no address of the web")
    proxy = getproxies().get(parts.scheme, "")
    if not proxy or proxy_bypass(parts.netloc):
        return PoolManager()
    return ProxyManager(
        proxy, proxy_headers=make_headers(proxy_basic_auth=parse_url(proxy).auth or None)
    )


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0


def display_unit(num_bytes: int) -> tuple[int, str]:
    """Return the bytes and the name of the unit in which the progress of a file is shown."""
    return (1_000, "kB") if num_bytes < 10_000_000 else (1_000_000, "MB")


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
    computed = _hash(file, kind, found)
    return "" if computed == expected else f"{kind} {computed}, {expected} expected"


def _hash(file: Path, kind: str, num_bytes: int) -> str:
    digest = hashlib.new(kind, usedforsecurity=False)
    seen = 0
    size, unit = display_unit(num_bytes)
    name = file.name.removesuffix(".part")
    with file.open("rb") as content, progress("verify", name, num_bytes // size, unit) as shown:
        while chunk := content.read(CHUNK):
            digest.update(chunk)
            before, seen = seen, seen + len(chunk)
            shown.add(seen // size - before // size)
    return digest.hexdigest()


FOLDER = ".checked"
"""Folder, below the data folder, with a file for each set that was whole."""


def last_check(key: str, data: Path) -> str:
    """Return the day of the check of a set whose folders are as they were then; else nothing."""
    file = data / FOLDER / key
    if not file.exists() or file.read_text() != _state(key, data):
        return ""
    return time.strftime("%Y-%m-%d", time.localtime(file.stat().st_mtime))


def remember(key: str, data: Path) -> None:
    """Note that a set was whole just now; half of this note, after a kill, is none."""
    (data / FOLDER).mkdir(exist_ok=True)
    (data / FOLDER / key).write_text(_state(key, data))


def _state(key: str, data: Path) -> str:
    """Return a hash of what is expected of a set, and of when each of its folders changed."""
    info = DATASETS[key]
    digest = hashlib.sha256(repr(expected_sizes(key, data)).encode())
    names = {info.folder, info.alternative_folder, info.second_folder}
    for name in sorted((names | {source.folder for source in info.sources}) - {""}):
        for folder, inner, _ in os.walk(data / name):
            inner.sort()
            digest.update(f"{folder} {Path(folder).stat().st_ctime_ns}\n".encode())
    return digest.hexdigest()
