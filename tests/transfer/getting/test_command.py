"""python -m transfer get-data against a local server."""

from pathlib import Path

import pytest

from tests.transfer.getting.conftest import Publish
from tests.transfer.getting.server import Server
from transfer.__main__ import main
from transfer.datasets.check import check


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
