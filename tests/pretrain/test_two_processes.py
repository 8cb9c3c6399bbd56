"""Two processes with half a batch each equal one process with the whole batch."""

import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from pretrain.launch import launched
from pretrain.methods.jcl import JCL, JCLConfig
from pretrain.parts.gather import gather, gather_with_gradient
from pretrain.parts.shuffle_bn import shuffled_forward

pytestmark = pytest.mark.slow
NUM_IMAGES = 6


def rows() -> Tensor:
    """(N, 3), the same in every process."""
    return torch.arange(3.0 * NUM_IMAGES).view(NUM_IMAGES, 3).sin()


def method_and_views() -> tuple[JCL, list[Tensor]]:
    """JCL without batch norm, whose result cannot depend on how a batch is split."""
    torch.manual_seed(0)
    backbone = nn.Sequential(nn.Flatten(), nn.Linear(48, 12), nn.ReLU(), nn.Linear(12, 12))
    method = JCL(backbone, 12, JCLConfig(num_keys=2, queue_size=16, embedding_dim=8))
    return method, list(torch.randn(3, NUM_IMAGES, 3, 4, 4))


def gathered_loss(mine: Tensor) -> Tensor:
    """A loss that couples all rows."""
    everything = gather_with_gradient(mine)
    return (everything @ everything.T).exp().mean()


def measured(rank: int, num_processes: int) -> dict[str, Any]:
    """What one process sees of two training steps and of each part."""
    size = NUM_IMAGES // num_processes
    mine = slice(rank * size, (rank + 1) * size)
    method, views = method_and_views()
    network = method if num_processes == 1 else DistributedDataParallel(method)
    losses = []
    for _ in range(2):
        method.zero_grad()
        loss = network([view[mine] for view in views], 1.0)["loss"]
        loss.backward()
        losses.append(loss.detach())
        with torch.no_grad():
            for parameter in method.encoder.parameters():
                assert parameter.grad is not None
                parameter.sub_(parameter.grad)
    leaf = rows()[mine].clone().requires_grad_()
    gathered_loss(leaf).backward()
    torch.manual_seed(rank)  # only the first process draws the permutation
    return {
        "losses": torch.stack(losses),
        "gradients": [parameter.grad for parameter in method.encoder.parameters()],
        "queue": method.queue.keys,
        "gathered": gather(rows()[mine]),
        "gathered_gradient": leaf.grad,
        "shuffled": shuffled_forward(nn.Identity(), rows()[mine], 1),
    }


@pytest.fixture(scope="module")
def halves(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("two")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    workers = []
    for rank in range(2):
        place = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2"}
        meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, __file__, str(folder / f"{rank}.pt")]
        workers.append(subprocess.Popen(command, env={**os.environ, **place, **meeting}))
    assert [worker.wait(timeout=100) for worker in workers] == [0, 0]
    return [torch.load(folder / f"{rank}.pt") for rank in range(2)]


@pytest.fixture(scope="module")
def whole() -> dict[str, Any]:
    return measured(0, 1)


def test_the_mean_loss_is_that_of_the_whole_batch(
    halves: list[dict[str, Any]], whole: dict[str, Any]
) -> None:
    mean = (halves[0]["losses"] + halves[1]["losses"]) / 2
    torch.testing.assert_close(mean, whole["losses"])


def test_gradients_are_those_of_the_whole_batch(
    halves: list[dict[str, Any]], whole: dict[str, Any]
) -> None:
    for half in halves:
        torch.testing.assert_close(half["gradients"], whole["gradients"])


def test_queues_are_that_of_the_whole_batch(
    halves: list[dict[str, Any]], whole: dict[str, Any]
) -> None:
    for half in halves:
        torch.testing.assert_close(half["queue"], whole["queue"])


def test_gather_returns_all_rows_in_order(halves: list[dict[str, Any]]) -> None:
    assert all(torch.equal(half["gathered"], rows()) for half in halves)


def test_the_gradient_of_gathered_rows_is_summed_over_processes(
    halves: list[dict[str, Any]], whole: dict[str, Any]
) -> None:
    joined = torch.cat([half["gathered_gradient"] for half in halves])
    torch.testing.assert_close(joined, 2 * whole["gathered_gradient"])


def test_shuffled_rows_return_to_their_process(halves: list[dict[str, Any]]) -> None:
    assert torch.equal(torch.cat([half["shuffled"] for half in halves]), rows())


if __name__ == "__main__":
    with launched("cpu") as process:
        torch.save(measured(process.rank, process.num_processes), Path(sys.argv[1]))
