"""Several processes of a module of tests: one for each GPU with nccl, or two with gloo on a CPU."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parents[2]
MOST_PROCESSES = 8
LIMIT_S = 400
"""Seconds after which processes count as stuck; those of a busy CPU start slowly."""


def launch(module: str, device: torch.device, folder: Path) -> int:
    """Run `python -m MODULE DEVICE FOLDER` in all processes; return their number.

    Skips with one GPU. CalledProcessError and TimeoutExpired if they fail; nothing of them goes on.
    """
    number = min(torch.cuda.device_count(), MOST_PROCESSES) if device.type == "cuda" else 2
    if number == 1:
        pytest.skip("one GPU")
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    command += ["--nproc-per-node", str(number), "-m", module, device.type, str(folder)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    if device.type == "cpu":
        environment["CUDA_VISIBLE_DEVICES"] = ""
    subprocess.run(command, check=True, env=environment, timeout=LIMIT_S)
    return number
