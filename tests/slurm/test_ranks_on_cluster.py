"""One command on two nodes of a real cluster: the processes find each other."""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from pretrain.__main__ import main as pretrain
from slurm.__main__ import main as slurm
from slurm.state import saved_error
from tests.rounding import rounding_error
from tests.slurm.conftest import wait_for_all, wait_until
from tests.slurm.pretend_cluster import PretendCluster
from transfer.__main__ import main as transfer
from transfer.datasets.synthetic.generate import generate

pytestmark = [pytest.mark.slurm, pytest.mark.slow, pytest.mark.xdist_group("slurm")]
OPTIONS = ("--steps", "3", "--batch-size", "16", "--read-every-steps", "1", "--device", "cpu")
RATE = 1e-4
"""Learning rate, so small that steps are nearly linear and an error does not grow in the next."""
SIXTY_LAYERS = 60 * rounding_error(torch.float32)
"""Relative error of a gradient that has passed as many layers: about 0.2 %."""
KINKS = 1 + 17 * 0.4
"""Factor for units that rounding pushes across the kink of their ReLU. The density at zero is 0.4
after a batch norm, so an error e moves 0.4 e of the units of each of ResNet-18's 17 ReLUs."""


def test_two_nodes_pretrain_as_one_process_with_the_whole_batch(
    pretend: PretendCluster, capsys: pytest.CaptureFixture[str]
) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as name:
        home = Path(name)
        generate(home, keys=("pretrain",))
        words = ["simaffinity/smoke", "--data", str(home / "pretrain"), *OPTIONS]
        learning = [*words, "--learning-rate", str(RATE), "--out"]
        job = [sys.executable, "-m", "pretrain", *learning, str(home / "two")]
        asked = ["--nodes", "2", "--cpus", "1", "--hours", "1", "--folder", str(home / "jobs")]
        assert slurm([*asked, "--", *job]) == 0
        _, id_, _, log = capsys.readouterr().out.split()
        assert pretrain([*learning, str(home / "one")]) == 0
        assert pretrain([*words, "--learning-rate", "0", "--out", str(home / "still")]) == 0
        assert wait_for_all([id_])[id_].word == "COMPLETED", Path(log).read_text()
        assert saved_error(Path(log).parent, id_) == ""
        assert "2 x cpu" in Path(log).read_text()
        # this loss is one of all images, so that the first process knows the whole of it
        two, one, still = losses(home / "two"), losses(home / "one"), losses(home / "still")
        learned = (one - still).abs()
        # rounding of a loss, and of what steps with rounded gradients have learned
        error = rounding_error(torch.float32, magnitude=one.max().item())
        allowed = error + KINKS * SIXTY_LAYERS * learned
        assert ((two - one).abs() <= allowed).all()
        # half or twice the gradient would not pass
        assert (learned[1:] > 4 * allowed[1:]).all()


def test_two_nodes_fine_tune_as_two_processes_of_one_machine(
    checkpoint: Path,
    small_data: Path,
    pretend: PretendCluster,
    capsys: pytest.CaptureFixture[str],
) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp", ignore_cleanup_errors=True) as name:
        home = Path(name)
        words = ["coco_det", "--ckpt", str(checkpoint), "--data", str(small_data)]
        words += ["--schedule", "smoke", "--engine", "torchvision", "--iterations", "30"]
        places = {
            where: ["--results", str(home / where), "--runs", str(home / f"runs-{where}")]
            for where in ("two", "one")
        }
        job = [sys.executable, "-m", "transfer", *words, *places["two"]]
        asked = ["--nodes", "2", "--cpus", "1", "--hours", "1", "--folder", str(home / "jobs")]
        assert slurm([*asked, "--", *job]) == 0
        _, id_, _, log = capsys.readouterr().out.split()
        wait_until(lambda: Path(log).exists() and "  weights " in Path(log).read_text())
        pretend.tell("scancel", "--signal=USR2", id_)
        assert wait_for_all([id_])[id_].word == "COMPLETED", Path(log).read_text()
        assert "going on after iteration" in Path(log).read_text()
        assert transfer([*words, *places["one"], "--gpus", "2"]) == 0
        two, one = (record(home / where) for where in ("two", "one"))
        assert two["details"]["num_processes"] == 2
        assert two["metrics"] == one["metrics"]
        assert (
            two["details"]["training"]["curve"] == one["details"]["training"]["curve"]
        )  # of losses


def record(results: Path) -> dict[str, Any]:
    (path,) = results.glob("records/*/*.seed0.json")
    content: dict[str, Any] = json.loads(path.read_text())
    return content


def losses(run: Path) -> Tensor:
    """Return the loss of each step of a pre-training, float64."""
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return torch.tensor([json.loads(line)["loss"] for line in lines], dtype=torch.float64)
