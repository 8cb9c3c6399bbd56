"""Run a test module's `measured(rank, num_processes)` in two gloo processes."""

import importlib
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from pretrain.running.processes import process_group

ROOT = Path(__file__).parents[1]


def two_processes(module: str, folder: Path) -> list[dict[str, Any]]:
    """Return the measurements of both processes."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    workers = []
    for rank in range(2):
        location = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "tests.two_processes", module, str(folder / f"{rank}.pt")]
        settings = {**os.environ, **location, **meeting}
        workers.append(subprocess.Popen(command, cwd=ROOT, env=settings))
    assert [worker.wait(timeout=200) for worker in workers] == [0, 0]
    return [torch.load(folder / f"{rank}.pt") for rank in range(2)]


if __name__ == "__main__":
    with process_group(cuda=False) as process:
        measure_losses = importlib.import_module(sys.argv[1]).measure_losses
        torch.save(measure_losses(process.rank, process.num_processes), Path(sys.argv[2]))
    # torch 2.15 keeps gloo's threads where DDP was used, and they may abort the interpreter's end
    sys.stderr.flush()
    os._exit(0)
