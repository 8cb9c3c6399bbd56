"""Result tables on Weights & Biases."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks.execution import wandb_results
from benchmarks.execution.wandb_results import COLUMNS, log_results, require_wandb
from tests.synthetic_records import record


class FakeRun:
    """A run that keeps what it is told."""

    def __init__(self) -> None:
        self.logged: dict[str, Any] = {}
        self.summary: dict[str, float] = {}

    def log(self, values: dict[str, Any]) -> None:
        self.logged |= values

    def finish(self) -> None:
        pass


def stand_in(run: FakeRun, error: Exception | None = None) -> SimpleNamespace:
    def init(**_: Any) -> FakeRun:
        if error is not None:
            raise error
        return run

    def table(columns: list[str], data: list[Any]) -> dict[str, Any]:
        return {"columns": columns, "data": data}

    return SimpleNamespace(init=init, Table=table, Error=ConnectionError)


def test_every_metric_is_a_row_and_a_summary(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = FakeRun()
    monkeypatch.setitem(sys.modules, "wandb", stand_in(run))
    record(tmp_path, 79.7)
    log_results("ssl", tmp_path)
    table = run.logged["results"]
    assert table["columns"] == list(COLUMNS)
    assert table["data"] == [
        ["mine", "voc07_svm", "mAP", 79.7, "co2-2021/1", "paper", 0, "batched", "published"]
    ]
    assert run.summary == {"mine/voc07_svm/mAP": 79.7}


def test_no_network_is_told_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", stand_in(FakeRun(), ConnectionError("no network")))
    log_results("ssl", tmp_path)
    assert capsys.readouterr().err == "results were not logged with wandb: no network\n"


def test_without_wandb_nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wandb_results, "find_spec", lambda _: None)
    with pytest.raises(ValueError, match="pip install wandb"):
        require_wandb()
