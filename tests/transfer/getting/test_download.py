"""Download an archive from a server that fails realistically."""

import hashlib
from dataclasses import replace
from pathlib import Path

import pytest

from tests.transfer.getting.conftest import Server
from transfer.datasets.expected import DataError
from transfer.datasets.info import Archive
from transfer.getting.download import download

CONTENT = bytes(range(256)) * 40


@pytest.fixture
def archive(server: Server) -> Archive:
    """An archive that the server has at a/x.tar."""
    server.files["a/x.tar"] = CONTENT
    return Archive(
        name="x.tar",
        urls=(server.url("a/x.tar"),),
        num_bytes=len(CONTENT),
        checksum=f"sha256:{hashlib.sha256(CONTENT).hexdigest()}",
    )


def test_a_cut_connection_goes_on_where_it_broke(
    archive: Archive, server: Server, tmp_path: Path
) -> None:
    server.cuts["a/x.tar"] = [1000, 500]
    download(archive, tmp_path / "x.tar")
    assert (tmp_path / "x.tar").read_bytes() == CONTENT
    assert [requested for _, requested in server.requests] == ["", "bytes=1000-", "bytes=1500-"]


@pytest.mark.parametrize(
    ("beginning", "exact", "requests"),
    [
        (CONTENT[:777], True, ["bytes=777-"]),
        (CONTENT + b"?", True, ["bytes=10241-", ""]),  # longer than the file
        (CONTENT + b"?", False, ["bytes=10241-", ""]),
        (b"?" * 100, True, ["bytes=100-", ""]),  # spoiled: costs one more transfer
    ],
)
def test_a_second_run_goes_on_where_the_first_one_ended(
    archive: Archive,
    server: Server,
    tmp_path: Path,
    beginning: bytes,
    exact: bool,
    requests: list[str],
) -> None:
    (tmp_path / "x.tar.part").write_bytes(beginning)
    download(replace(archive, exact=exact), tmp_path / "x.tar")
    assert (tmp_path / "x.tar").read_bytes() == CONTENT
    assert [requested for _, requested in server.requests] == requests
    assert [path.name for path in tmp_path.iterdir()] == ["x.tar"]


def test_a_server_without_ranges_sends_the_file_again(
    archive: Archive, server: Server, tmp_path: Path
) -> None:
    server.without_ranges = True
    server.cuts["a/x.tar"] = [1000]
    download(archive, tmp_path / "x.tar")
    assert (tmp_path / "x.tar").read_bytes() == CONTENT


def test_a_file_that_never_ends_is_refused(
    archive: Archive, server: Server, tmp_path: Path
) -> None:
    rounded = replace(archive, exact=False, num_bytes=len(CONTENT) // 3)
    with pytest.raises(DataError, match="sent more than"):
        download(rounded, tmp_path / "x.tar")
    with pytest.raises(DataError, match=f"{len(CONTENT):,} bytes, 10 expected"):
        download(replace(archive, num_bytes=10), tmp_path / "y.tar")


def test_failed_addresses_are_named(archive: Archive, server: Server, tmp_path: Path) -> None:
    """Malformed headers and redirects are reasons like any other."""
    refused = {
        "length": "Error 404",
        "bad": "Invalid IPv6 URL",
        "loop": "infinite loop",
        "page": f"{len(CONTENT):,} expected",
        "cut": "broke off after",
        "size": f"{len(CONTENT) - 1:,} bytes, {len(CONTENT):,} expected",
        "other": "the server has another file",
    }
    server.redirects |= {"bad": "http://[bad/", "loop": "loop"}
    server.files["page"] = b"<html>Sorry, this moved.</html>"
    server.files["cut"], server.cuts["cut"] = CONTENT, [9] * 20
    server.files["other"] = b"?" * len(CONTENT)
    server.files["size"] = CONTENT[1:]
    urls = tuple(server.url(path) for path in refused)
    with pytest.raises(DataError) as failure:
        download(replace(archive, urls=urls), tmp_path / "x.tar")
    lines = str(failure.value).splitlines()[1:-1]
    assert [url for url, line in zip(urls, lines, strict=True) if url not in line] == []
    assert [
        reason for reason, line in zip(refused.values(), lines, strict=True) if reason not in line
    ] == []
    assert not list(tmp_path.iterdir())
    download(replace(archive, urls=(*urls, *archive.urls)), tmp_path / "x.tar")
    assert (tmp_path / "x.tar").read_bytes() == CONTENT
