"""The benchmark of pre-training: alone, beside lightly, and on two processes."""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch import nn

import pretrain.speed.bench_peers
from pretrain.data.feed import Batch
from pretrain.loop import Job, Training, training_step
from pretrain.running.launch import Process
from pretrain.speed.bench_peers import peer_reports
from pretrain.speed.bench_steps import write_noise_images
from pretrain.speed.options import Benchmark

CPU = Process(device=torch.device("cpu"))
SHORT = ("--batch-size", "16", "--num-steps", "1", "--num-rounds", "1", "--num-queries", "16")
SMALL = ("--queue-size", "64", "--embedding-dim", "16", "--recipe", "moco/smoke", "--device", "cpu")


def test_a_line_says_how_to_install_what_is_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    (line,) = peer_reports(Benchmark(device="cpu"), tmp_path, tmp_path, CPU)
    assert "pip install -e '.[compare]'" in line


def test_steps_of_lightlys_modules_train_in_the_same_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("lightly", reason="needs lightly: pip install '.[compare]'")
    steps = []

    def count(job: Job, training: Training, network: nn.Module, batch: Batch) -> None:
        steps.append(training)
        training_step(job, training, network, batch)

    monkeypatch.setattr(pretrain.speed.bench_peers, "training_step", count)
    settings = Benchmark(device="cpu", batch_size=8, num_rounds=1)
    lines = peer_reports(settings, write_noise_images(tmp_path / "x", 8), tmp_path / "y", CPU)
    assert [line.split(":")[0] for line in lines] == [
        "step of moco/cifar10-cpu beside lightly's",
        "step of simclr/cifar10-cpu beside lightly's",
    ]
    assert len(steps) == 8  # a round of warm-up and one that counts, of four runs


@pytest.mark.slow
def test_two_processes_measure_one_batch_and_print_each_line_once() -> None:
    """The process group is joined once: a second time is an error of torch."""
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    words += ["-m", "pretrain.benchmark", *SHORT, *SMALL]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    run = subprocess.run(words, capture_output=True, text=True, env=environment, check=False)
    assert run.returncode == 0, run.stderr
    lines = run.stdout.splitlines()
    assert sum(line.startswith("step moco/smoke") for line in lines) == 1
    assert any("2 x cpu: " in line for line in lines)
