"""One command on two nodes of a real cluster: the processes find each other."""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch

from pretrain.__main__ import main as pretrain
from slurm.__main__ import main as slurm
from slurm.state import left_error
from tests.slurm.conftest import wait_for_all
from tests.slurm.pretend_cluster import PretendCluster
from transfer.datasets.generate import generate

pytestmark = [pytest.mark.slurm, pytest.mark.slow]
OPTIONS = ("--steps", "3", "--batch-size", "16", "--read-every-steps", "1", "--device", "cpu")


def test_two_nodes_pretrain_as_one_process_with_the_whole_batch(
    pretend: PretendCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as name:
        home = Path(name)
        generate(home, keys=("pretrain",))
        words = ["simclr/smoke", "--data", str(home / "pretrain"), *OPTIONS, "--out"]
        job = [sys.executable, "-m", "pretrain", *words, str(home / "two")]
        asked = ["--nodes", "2", "--cpus", "1", "--hours", "1", "--folder", str(home / "jobs")]
        assert slurm([*asked, "--", *job]) == 0
        _, id_, _, log = capsys.readouterr().out.split()
        assert pretrain([*words, str(home / "one")]) == 0
        assert wait_for_all([id_])[id_].word == "COMPLETED", Path(log).read_text()
        assert left_error(Path(log).parent, id_) == ""
        assert "2 x cpu" in Path(log).read_text()
        losses = [[line["loss"] for line in lines(home / run)] for run in ("one", "two")]
        assert len(losses[0]) == 3
        assert losses[1] == pytest.approx(losses[0], rel=1e-4)
        one, two = (weights(home / run) for run in ("one", "two"))
        for key, tensor in one.items():
            torch.testing.assert_close(two[key], tensor, rtol=1e-2, atol=1e-3)


def lines(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]


def weights(run: Path) -> dict[str, torch.Tensor]:
    content = torch.load(run / "backbone.pt", weights_only=True)
    found: dict[str, torch.Tensor] = content["state_dict"]
    return found
