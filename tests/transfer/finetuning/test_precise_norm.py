"""Statistics of norms over many batches: against sums by hand and against fvcore."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pretrain.running.processes import Process
from tests.two_processes import two_processes
from transfer.finetuning.precise_norm import set_precise_norms

ALONE = Process(device=torch.device("cpu"))


def batches(sizes: tuple[int, ...] = (2, 3, 4, 5)) -> list[Tensor]:
    """Return maps of so many images, (n, 3, 5, 5), float64."""
    generator = torch.Generator().manual_seed(0)
    return [
        3 * torch.randn(n, 3, 5, 5, generator=generator, dtype=torch.float64) + n for n in sizes
    ]


def set_norms(network: nn.Module, given: list[Tensor], process: Process = ALONE) -> None:
    set_precise_norms(network, given, process)  # type: ignore[arg-type]


def two_layers() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(
        nn.BatchNorm2d(3), nn.Conv2d(3, 4, 3), nn.ReLU(), nn.BatchNorm2d(4, momentum=0.3)
    ).double()


def statistics(layer: nn.Module) -> Tensor:
    return torch.stack([layer.get_buffer("running_mean"), layer.get_buffer("running_var")])


def test_the_first_layer_has_the_statistics_of_all_values() -> None:
    network = two_layers()
    set_norms(network, batches())
    values = torch.cat(batches()).transpose(0, 1).flatten(1)
    expected = torch.stack([values.mean(dim=1), values.var(dim=1, correction=0)])
    torch.testing.assert_close(statistics(network[0]), expected)


def test_momenta_come_back_after_a_failure() -> None:
    network = two_layers()
    with pytest.raises(RuntimeError, match="Kernel size"):
        set_norms(network, [torch.zeros(2, 3, px, px, dtype=torch.float64) for px in (5, 2)])
    assert [network[0].momentum, network[3].momentum] == [0.1, 0.3]
    assert not network[0]._forward_hooks


def test_a_layer_that_is_called_twice_counts_both_calls() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm2d(3)

        def forward(self, both: tuple[Tensor, Tensor]) -> None:
            self.norm(both[0])
            self.norm(both[1])

    network, plain = Twice().double(), nn.BatchNorm2d(3).double()
    given = batches()
    set_norms(network, [(given[0], given[1]), (given[2], given[3])])  # type: ignore[list-item]
    set_norms(plain, given)
    torch.testing.assert_close(statistics(network.norm), statistics(plain))


def test_a_batch_without_values_counts_nothing() -> None:
    with_empty, without = nn.BatchNorm2d(3).double(), nn.BatchNorm2d(3).double()
    set_norms(with_empty, [*batches(), torch.zeros(0, 3, 7, 7, dtype=torch.float64)])
    set_norms(without, batches())
    assert torch.equal(statistics(with_empty), statistics(without))
    untouched = nn.BatchNorm2d(3)
    set_norms(untouched, [torch.zeros(0, 3, 7, 7)])
    assert torch.equal(statistics(untouched), statistics(nn.BatchNorm2d(3)))


@pytest.mark.detectron2
def test_statistics_equal_those_of_fvcore() -> None:
    reference = pytest.importorskip("fvcore.nn.precise_bn")
    ours, theirs = two_layers(), two_layers()
    set_norms(ours, batches())
    reference.update_bn_stats(theirs, batches(), num_iters=4)
    for index in (0, 3):
        torch.testing.assert_close(statistics(ours[index]), statistics(theirs[index]))


def measure_losses(rank: int, num_processes: int) -> dict[str, Any]:
    """Statistics after every second batch, each process's own."""
    network = two_layers()
    process = Process(rank=rank, num_processes=num_processes, device=torch.device("cpu"))
    set_norms(network, batches()[rank::num_processes], process)
    return {"first": statistics(network[0]), "last": statistics(network[3])}


@pytest.mark.slow
def test_two_processes_share_what_one_would_find(tmp_path: Path) -> None:
    first, second = two_processes("tests.transfer.finetuning.test_precise_norm", tmp_path)
    alone = measure_losses(0, 1)
    for name in ("first", "last"):
        assert torch.equal(first[name], second[name])
        torch.testing.assert_close(first[name], alone[name])
