"""Work dealt to several processes."""

import signal
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.two_processes import two_processes
from transfer.running import stop
from transfer.running.processes import Process, indices_of_process, this_process


def measure_losses(rank: int, num_processes: int) -> dict[str, Any]:
    """Return this process's share of five images, without and with a signal to the second one."""
    process = this_process()
    share = list(indices_of_process(5, process))
    stop.listen()
    begun: list[int] = []
    status = None
    try:
        for index in indices_of_process(6, process):
            begun.append(index)
            if rank == 1:
                signal.raise_signal(signal.SIGTERM)
    except stop.Stopped as left:
        status = left.code
    return {"share": share, "begun": begun, "status": status}


@pytest.mark.slow
def test_processes_share_images_and_leave_together(tmp_path: Path) -> None:
    first, second = two_processes("tests.transfer.running.test_processes", tmp_path)
    assert (first["share"], second["share"]) == ([0, 2, 4], [1, 3])
    assert (first["begun"], second["begun"]) == ([0], [1])
    assert first["status"] == second["status"] == stop.EXIT_RESUMABLE


def test_one_process_takes_all() -> None:
    assert list(indices_of_process(3, Process(device=torch.device("cpu")))) == [0, 1, 2]
