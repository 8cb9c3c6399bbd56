"""One command on two nodes: the processes find each other."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from slurm.__main__ import main as slurm
from tests.slurm.conftest import wait_for_all, wait_until
from tests.slurm.pretend_cluster import PretendCluster
from transfer.__main__ import main as transfer

pytestmark = [pytest.mark.slurm, pytest.mark.slow, pytest.mark.xdist_group("slurm")]


def test_two_nodes_fine_tune_as_two_processes_of_one_machine(
    checkpoint: Path,
    small_data: Path,
    folder: Path,
    pretend: PretendCluster,
    capsys: pytest.CaptureFixture[str],
) -> None:
    args = ["coco_det", "--ckpt", str(checkpoint), "--data", str(small_data)]
    args += ["--schedule", "smoke", "--engine", "torchvision", "--iterations", "30"]
    folder_args = {
        name: ["--results", str(folder / name), "--runs", str(folder / f"runs-{name}")]
        for name in ("two", "one")
    }
    job = [sys.executable, "-m", "transfer", *args, *folder_args["two"]]
    requested = ["--nodes", "2", "--cpus", "1", "--hours", "1", "--folder", str(folder / "jobs")]
    assert slurm([*requested, "--", *job]) == 0
    _, id_, _, log = capsys.readouterr().out.split()
    wait_until(lambda: Path(log).exists() and "  weights " in Path(log).read_text())
    pretend.tell("scancel", "--signal=USR2", id_)
    assert wait_for_all([id_])[id_].slurm_state == "COMPLETED", Path(log).read_text()
    assert "resuming after iteration" in Path(log).read_text()
    assert transfer([*args, *folder_args["one"], "--gpus", "2"]) == 0
    two, single = (record(folder / name) for name in ("two", "one"))
    assert two["details"]["num_processes"] == 2
    assert two["metrics"] == single["metrics"]
    losses = [result["details"]["training"]["curve"] for result in (two, single)]
    assert losses[0] == losses[1]


def record(results: Path) -> dict[str, Any]:
    (path,) = results.glob("records/*/*.seed0.json")
    content: dict[str, Any] = json.loads(path.read_text())
    return content
