"""One source, interrupted anywhere: a set appears under its name when it is whole."""

import errno
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from pretrain.running import stop
from pretrain.running.atomic_files import WriteError
from tests.transfer.getting.conftest import Publish
from tests.transfer.getting.server import Server
from transfer.__main__ import main
from transfer.datasets.check import check
from transfer.datasets.expected import DataError
from transfer.getting import assemble
from transfer.getting.assemble import WORK, Getting, get_source


class KilledError(Exception):
    """Stands for the end of the process at this point."""


FULL = OSError(errno.ENOSPC, "No space left on device")
ENDS: dict[str, tuple[Any, int, Exception]] = {
    "download": (assemble, 2, KilledError()),
    "unpack": (assemble, 2, KilledError()),
    "exit_if_requested": (stop, 21, KilledError()),  # within an archive
    "_stage": (assemble, 1, KilledError()),
    "find_all": (assemble, 1, KilledError()),
    "_require_whole": (assemble, 1, KilledError()),
    "rename": (Path, 1, FULL),
}
"""Functions, where they are, and the call of each at which a run ends."""


@pytest.mark.parametrize("step", ENDS)
def test_a_run_that_ends_at_any_step_goes_on(
    step: str, publish: Publish, data: Path, monkeypatch: pytest.MonkeyPatch, server: Server
) -> None:
    source, (place, last, error), calls = publish("pets"), ENDS[step], count(1)
    real = getattr(place, step)

    def end_at_the_last_call(*words: object) -> object:
        if next(calls) == last:
            raise error
        return real(*words)

    with monkeypatch.context() as patch:
        patch.setattr(place, step, end_at_the_last_call)
        with pytest.raises(WriteError if error is FULL else KilledError):
            get_source(source, Getting(data=data))
    assert not (data / source.folder).exists()
    get_source(source, Getting(data=data))
    assert check("pets", data, decode=True).ok
    assert not (data / WORK).exists()
    assert len(server.requests) == len(source.archives)


def test_a_file_in_the_place_of_an_archive_is_verified(
    publish: Publish, data: Path, tmp_path: Path
) -> None:
    source = publish("dtd")
    name = source.archives[0].name
    own, earlier = tmp_path / "own.tar.gz", data / "archives" / "dtd" / name
    earlier.parent.mkdir(parents=True)
    for file in (own, earlier):
        file.write_bytes(b"?" * source.archives[0].num_bytes)
    for getting in (
        Getting(data=data, local={"dtd": {name: own}}, only_local=True),
        Getting(data=data),
    ):
        with pytest.raises(DataError, match="not the published file"):
            get_source(source, getting)
    assert own.exists()
    assert not (data / source.folder).exists()


def test_a_second_process_waits_and_finds_the_set(
    publish: Publish, data: Path, server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    source = publish("dtd")
    server.hangs["dtd/dtd-r1.0.1.tar.gz"] = [1000]
    with ThreadPoolExecutor() as threads:
        first = threads.submit(get_source, source, Getting(data=data))
        while not server.requests:
            time.sleep(0.01)
        second = threads.submit(get_source, source, Getting(data=data))
        while "another process gets it" not in capsys.readouterr().err:
            time.sleep(0.01)
        server.released.set()
        assert first.result() is not None
        assert second.result() is None  # there was nothing left to do
    assert not (data / WORK).exists()


def test_an_incomplete_set_appears_only_if_it_is_tolerated(
    publish: Publish, small_data: Path, data: Path, tmp_path: Path
) -> None:
    source, found = publish("aircraft"), tmp_path / "planes"
    shutil.copytree(small_data / source.folder, found)
    next((found / "data" / "images").iterdir()).unlink()
    with pytest.raises(DataError, match="not whole"):
        get_source(source, Getting(data=data, found={"aircraft": found}))
    assert not (data / source.folder).exists()
    get_source(source, Getting(data=data))  # the failed link does not count
    assert not (data / source.folder).is_symlink()
    assert check("aircraft", data, decode=False).ok
    shutil.rmtree(data / source.folder)
    words = ["get-data", "aircraft", "--link", str(found), "--data", str(data)]
    assert main(words) == 1
    assert main([*words, "--tolerate", "1"]) == 0


def test_what_killed_runs_left_goes_at_the_next(publish: Publish, data: Path) -> None:
    source = publish("dtd")
    get_source(source, Getting(data=data))
    (data / WORK / "dtd" / "done").mkdir(parents=True)  # killed between its last two steps
    get_source(source, Getting(data=data, remove_archives=True))
    assert {path.name for path in data.iterdir()} == {"dtd", "small-data.json"}
    assert not list(data.rglob(".*"))
