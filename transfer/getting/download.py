"""Download one archive: resumed, retried, from several addresses, and verified.

The checksum shows that all pieces of a resumed transfer belong to one file.
"""

import hashlib
import time
from http.client import HTTPException
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from pretrain.running import stop
from pretrain.running.atomic_files import WriteError, explain_write_errors
from pretrain.running.console import print_line, progress
from transfer.datasets.expected import DataError
from transfer.datasets.info import Archive

MB = 1_000_000
CHUNK_BYTES = 200_000
TIMEOUT_S = 30
"""Maximum wait for a connection, and for the next bytes."""
MAX_FAILURES = 6
"""Consecutive failures of one address; a transfer with progress starts the count again."""
MAX_WAIT_S = 60
"""Maximum wait between two tries."""
MIN_PROGRESS_BYTES = 60_000
"""Minimum number of bytes that count as progress of an interrupted transfer."""
TEMPORARY_STATUSES = (408, 425, 429, 500, 502, 503, 504)


def download(archive: Archive, file: Path) -> None:
    """Download an archive to a file, which appears when it is verified.

    An earlier transfer is resumed. Raises DataError if every address fails, WriteError if the file
    cannot be written.
    """
    partial = file.with_name(f"{file.name}.part")
    file.parent.mkdir(parents=True, exist_ok=True)
    reasons = []
    for address in archive.urls:
        try:
            _fetch(archive, address, partial)
        except WriteError:
            raise
        except (OSError, HTTPException, ValueError) as error:
            reasons.append(f"{address}: {' '.join(str(error).split())}")
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
    num_failures, was_wrong = 0, False
    while True:
        old_size = _size(partial)
        try:
            _transfer(archive, address, partial)
        except WriteError:
            raise
        except (OSError, HTTPException) as error:
            is_final = isinstance(error, HTTPError) and error.code not in TEMPORARY_STATUSES
            has_progress = _size(partial) - old_size >= MIN_PROGRESS_BYTES
            num_failures = 1 if has_progress else num_failures + 1
            if is_final or num_failures > MAX_FAILURES:
                raise
            print_line("download", f"{error}; trying again")
            time.sleep(min(2**num_failures, MAX_WAIT_S))
            continue
        difference = mismatch(archive, partial)
        if not difference:
            return
        partial.unlink()
        if was_wrong:
            raise ValueError(f"the server has another file ({difference})")
        was_wrong = True  # bytes of an earlier transfer or of another address may be wrong


def _transfer(archive: Archive, address: str, partial: Path) -> None:
    """Append the missing bytes to the partial file.

    Raises OSError or HTTPException if the transfer is interrupted, ValueError if the server has
    another file.
    """
    num_bytes = _size(partial) if archive.checksum else 0
    if archive.exact and num_bytes == archive.num_bytes:
        return
    request = Request(address, headers={"User-Agent": "transfer get-data"})
    if num_bytes:
        request.add_header("Range", f"bytes={num_bytes}-")
    try:
        response = urlopen(request, timeout=TIMEOUT_S)
    except HTTPError as error:
        if error.code == 416:  # no bytes are missing; the caller verifies the file
            return
        raise
    with response:
        if response.status != 206:  # the server sends the complete file
            num_bytes = 0
        if archive.exact and response.length is not None:
            size = num_bytes + response.length
            if size != archive.num_bytes:
                raise ValueError(f"the file has {size:,} bytes, {archive.num_bytes:,} expected")
        max_bytes = archive.num_bytes if archive.exact else 2 * archive.num_bytes
        with explain_write_errors(partial, "--data"):
            output = partial.open("ab" if num_bytes else "wb")
        total_mb, done_mb = archive.num_bytes // MB, num_bytes // MB
        with output, progress("download", archive.name, total_mb, "MB", done_mb) as bar:
            while chunk := response.read(CHUNK_BYTES):
                stop.exit_if_requested()
                with explain_write_errors(partial, "--data"):
                    output.write(chunk)
                    output.flush()
                num_bytes += len(chunk)
                bar.add(num_bytes // MB - bar.done)
                if num_bytes > max_bytes:
                    raise ValueError(f"the server sent more than the expected {max_bytes:,} bytes")
        if response.length:
            raise ConnectionError(f"the connection broke off after {num_bytes:,} bytes")


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
