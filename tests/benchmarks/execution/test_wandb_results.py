"""Result tables on Weights & Biases."""

import sys
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from benchmarks.execution import ending
from benchmarks.execution.ending import COLUMNS, log_results, require_wandb
from tests.synthetic_records import record


def test_every_metric_is_a_row_and_a_summary_and_no_network_is_told_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    wandb = MagicMock(Error=ConnectionError)
    wandb.init.return_value.summary = {}
    monkeypatch.setitem(sys.modules, "wandb", wandb)
    record(tmp_path, 79.7)
    log_results("ssl", tmp_path, tmp_path / "runs")
    numbers = ["mine", "voc07_svm", "mAP", 79.7, "co2-2021/1", "paper", 0, "batched", "published"]
    wandb.Table.assert_called_once_with(columns=list(COLUMNS), data=[numbers])
    name = "mine/voc07_svm/co2-2021/1/paper/seed0/mAP"
    assert wandb.init.return_value.summary == {name: 79.7}
    wandb.init.side_effect = ConnectionError("no network")
    log_results("ssl", tmp_path, tmp_path / "runs")
    assert capsys.readouterr().err == "results were not logged with wandb: no network\n"


def test_without_wandb_nothing_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ending, "find_spec", lambda _: None)
    with pytest.raises(ValueError, match="pip install wandb"):
        require_wandb(submits=False)
    with pytest.raises(ValueError, match="without --slurm"):
        require_wandb(submits=True)
