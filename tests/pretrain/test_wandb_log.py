"""The log of a run on Weights & Biases."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pretrain.metrics import Log, WandbLog, is_installed


class FakeRun:
    """A run that keeps what it is told."""

    def __init__(self, **started: Any) -> None:
        self.started, self.ended = started, False
        self.logged: list[tuple[int, dict[str, float]]] = []

    def log(self, values: dict[str, float], step: int) -> None:
        self.logged.append((step, values))

    def finish(self) -> None:
        self.ended = True


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch) -> list[FakeRun]:
    """Put a stand-in in the place of wandb; return the runs that it starts."""
    started: list[FakeRun] = []

    def init(**words: Any) -> FakeRun:
        started.append(FakeRun(**words))
        return started[-1]

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=init))
    return started


def test_every_line_of_the_log_is_sent(tmp_path: Path, runs: list[FakeRun]) -> None:
    log = Log(tmp_path, 0, WandbLog("ssl", tmp_path, {"recipe": "jcl/smoke"}))
    log.write(20, {"loss": 4.5})
    log.close()
    (run,) = runs
    assert run.started["project"] == "ssl"
    assert run.started["config"]["recipe"] == "jcl/smoke"
    assert run.logged == [(20, {"loss": 4.5})]
    assert run.ended


def test_a_resumed_run_continues_its_own(tmp_path: Path, runs: list[FakeRun]) -> None:
    for folder in (tmp_path / "a", tmp_path / "a", tmp_path / "b"):
        WandbLog("ssl", folder, {})
    first, second, other = (run.started["id"] for run in runs)
    assert first == second != other
    assert all(run.started["resume"] == "allow" for run in runs)


@pytest.mark.slow
@pytest.mark.skipif(not is_installed(), reason="needs wandb: pip install '.[logging]'")
def test_offline_the_log_stays_in_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WANDB_MODE", "offline")
    log = WandbLog("ssl", tmp_path, {"recipe": "jcl/smoke"})
    log.write(20, {"loss": 4.5})
    log.close()
    assert list((tmp_path / "wandb").glob("offline-run-*/*.wandb"))
