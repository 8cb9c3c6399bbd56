"""python -m transfer get-data against a local server."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.transfer.getting.conftest import Publish
from tests.transfer.getting.published import PACKERS, Packed
from tests.transfer.getting.server import Server
from transfer.__main__ import main
from transfer.datasets.catalog import DATASETS
from transfer.datasets.check import check
from transfer.getting.request import all_sources

FREE = [key for key in PACKERS if all_sources()[key].access == "download"]
ALONE = [key for key in FREE if key not in ("imagenet-lists", "sbd")]
"""Sources of sets that need no other source."""


def keys_of(source: str) -> list[str]:
    """Return the data sets that read this source alone."""
    return [key for key, info in DATASETS.items() if [own.key for own in info.sources] == [source]]


@pytest.mark.parametrize("source", ALONE)
def test_every_published_layout_ends_as_a_whole_set(
    source: str, publish: Publish, data: Path
) -> None:
    publish(source)
    keys = keys_of(source)
    assert keys
    assert main(["get-data", *keys, "--data", str(data)]) == 0
    assert all(check(key, data, decode=True).ok for key in keys)


@pytest.mark.parametrize("source", [key for key in PACKERS if key not in FREE])
def test_a_set_is_unpacked_from_the_archives_of_the_user(
    source: str, publish: Publish, packed: Callable[[str], Packed], data: Path, tmp_path: Path
) -> None:
    publish(source)
    keys, folder = keys_of(source), tmp_path / "packed"
    assert main(["get-data", *keys, "--data", str(data)]) == 1
    assert main(["get-data", *keys, "--data", str(data), "--from", str(folder)]) == 0
    assert all(check(key, data, decode=True).ok for key in keys)


def test_a_set_is_downloaded_unpacked_and_checked(publish: Publish, data: Path) -> None:
    publish("cifar10")
    assert main(["get-data", "cifar10", "--data", str(data)]) == 0
    assert check("cifar10", data, decode=True).ok
    assert not (data / ".getting").exists()


def test_a_set_that_is_there_is_not_downloaded_again(
    publish: Publish, data: Path, server: Server
) -> None:
    publish("cifar10")
    main(["get-data", "cifar10", "--data", str(data)])
    before = len(server.requests)
    assert main(["get-data", "cifar10", "--data", str(data)]) == 0
    assert len(server.requests) == before == 1


def test_a_plan_downloads_nothing(
    publish: Publish, data: Path, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    publish("cifar10")
    assert main(["get-data", "cifar10", "--data", str(data), "--plan"]) == 0
    assert "to download" in capsys.readouterr().out
    assert not server.requests
    assert {path.name for path in data.iterdir()} == {"small-data.json"}
