"""Norm layers: kinds, naive synchronization, and statistics over batches."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pretrain.running.processes import Process
from tests.two_processes import two_processes
from transfer.detection.detectron2_engine import silence_known_warnings
from transfer.detection.engines import is_available
from transfer.finetuning.norms import (
    NaiveSyncBatchNorm,
    Norm,
    norm_for,
    norm_layer,
    set_precise_norms,
)

CPU, GPU = torch.device("cpu"), torch.device("cuda")
ALONE = Process(device=CPU)


def maps(num_images: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(num_images, 3, 4, 5, generator=generator, dtype=torch.float64) * 2 + 1


def naive(layer: nn.Module) -> nn.Module:
    """Affine and statistics that are not those of a new layer."""
    with torch.no_grad():
        layer.get_parameter("weight").copy_(torch.tensor([0.5, 1.0, 2.0]))
        layer.get_parameter("bias").copy_(torch.tensor([0.1, 0.0, -1.0]))
    return layer.double().train()


def test_statistics_are_shared_where_there_is_someone_to_share_with() -> None:
    requested = [(CPU, 1), (GPU, 1), (CPU, 2), (GPU, 2)]
    kinds = [norm_for("SyncBN", device, num_processes) for device, num_processes in requested]
    assert kinds == ["BN", "BN", "naiveSyncBN", "SyncBN"]


@pytest.mark.parametrize("norm", ["BN", "SyncBN", "naiveSyncBN"])
def test_each_kind_in_one_process_is_batch_norm(norm: Norm) -> None:
    layer, plain = naive(norm_layer(norm)(3)), naive(nn.BatchNorm2d(3))
    torch.testing.assert_close(layer(maps(4)), plain(maps(4)))
    torch.testing.assert_close(dict(layer.named_buffers()), dict(plain.named_buffers()))


def passed(layer: nn.Module, input: Tensor) -> dict[str, Tensor]:
    """Output, gradients and statistics of one pass."""
    leaf = input.clone().requires_grad_()
    output = layer(leaf)
    output.pow(3).sum().backward()
    gradients = {name: parameter.grad for name, parameter in layer.named_parameters()}
    statistics = {name: layer.get_buffer(name) for name in ("running_mean", "running_var")}
    return {"output": output.detach(), "input": leaf.grad, **gradients, **statistics}


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


def precise_statistics(rank: int, num_processes: int) -> dict[str, Tensor]:
    """Statistics after every second batch, each process's own."""
    network = two_layers()
    process = Process(rank=rank, num_processes=num_processes, device=torch.device("cpu"))
    set_norms(network, batches()[rank::num_processes], process)
    return {"first": statistics(network[0]), "last": statistics(network[3])}


def precise_naive_statistics(rank: int, num_processes: int) -> Tensor:
    """Statistics over four batches of which each process has a half."""
    layer = NaiveSyncBatchNorm(3).double()
    process = Process(rank=rank, num_processes=num_processes, device=torch.device("cpu"))
    parts = [batch.chunk(num_processes)[rank] for batch in batches((2, 4, 6, 8))]
    set_norms(layer, parts, process)
    return statistics(layer)


def measure_losses(rank: int, num_processes: int) -> dict[str, Any]:
    """Return a process's results: half of four images.

    One image and three; overflow.
    """
    uneven = maps(1 + 2 * rank, seed=rank)
    half = torch.tensor([300.0, 500.0]).half().reshape(2, 1, 1, 1)
    result = {
        "half a batch": passed(naive(NaiveSyncBatchNorm(3)), maps(4).chunk(num_processes)[rank]),
        "uneven": passed(naive(NaiveSyncBatchNorm(3)), uneven),
        "half precision": NaiveSyncBatchNorm(1).train()(half).detach(),
        "precise": precise_statistics(rank, num_processes),
        "precise naive": precise_naive_statistics(rank, num_processes),
    }
    if is_available():
        with silence_known_warnings():
            from detectron2.layers import NaiveSyncBatchNorm as Theirs
        result["detectron2"] = passed(naive(Theirs(3)), uneven)
    return result


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return two_processes("tests.transfer.finetuning.test_norms", tmp_path_factory.mktemp("two"))


def test_two_processes_with_half_a_batch_equal_one_with_the_whole(
    processes: list[dict[str, Any]],
) -> None:
    first, second = (process["half a batch"] for process in processes)
    whole = passed(naive(nn.BatchNorm2d(3)), maps(4))
    for name in ("output", "input"):
        torch.testing.assert_close(torch.cat([first[name], second[name]]), whole[name])
    for name in ("weight", "bias"):
        torch.testing.assert_close(first[name] + second[name], whole[name])
    for process in processes:
        torch.testing.assert_close(process["precise"], precise_statistics(0, 1))


def test_precise_statistics_of_shared_norms_are_those_of_all_values(
    processes: list[dict[str, Any]],
) -> None:
    expected = of_values(*batches((2, 4, 6, 8)))
    torch.testing.assert_close(precise_naive_statistics(0, 1), expected)
    for process in processes:
        torch.testing.assert_close(process["precise naive"], expected)


def test_processes_have_equal_weight(
    processes: list[dict[str, Any]],
) -> None:
    parts = (maps(1), maps(3, seed=1))
    mean = torch.stack([part.mean(dim=(0, 2, 3)) for part in parts]).mean(dim=0)
    square = torch.stack([part.pow(2).mean(dim=(0, 2, 3)) for part in parts]).mean(dim=0)
    for process in processes:
        torch.testing.assert_close(process["uneven"]["running_mean"], 0.1 * mean)
        torch.testing.assert_close(process["uneven"]["running_var"], 0.9 + 0.1 * (square - mean**2))


def test_squares_of_half_precision_do_not_overflow(processes: list[dict[str, Any]]) -> None:
    for process in processes:
        assert process["half precision"].dtype == torch.float16
        # float16 has an eps of 2^-10
        assert process["half precision"].flatten().tolist() == pytest.approx([-1, 1], abs=1e-3)


@pytest.mark.detectron2
def test_the_naive_layer_is_detectron2s(processes: list[dict[str, Any]]) -> None:
    for process in processes:
        torch.testing.assert_close(process["uneven"], process["detectron2"], rtol=1e-12, atol=1e-12)


def of_values(*maps: Tensor) -> Tensor:
    values = torch.cat(maps).transpose(0, 1).flatten(1)
    return torch.stack([values.mean(dim=1), values.var(dim=1, correction=0)])


def test_a_layer_has_the_statistics_of_all_values_of_all_its_calls() -> None:
    network = two_layers()
    set_norms(network, batches())
    torch.testing.assert_close(statistics(network[0]), of_values(*batches()))
    layer, (inputs,) = nn.BatchNorm2d(3).double(), batches((5,))
    set_norms(nn.Sequential(layer, layer), [inputs])
    again = nn.BatchNorm2d(3).double()(inputs)
    torch.testing.assert_close(statistics(layer), of_values(inputs, again))


def test_a_batch_without_values_counts_nothing() -> None:
    with_empty, without = nn.BatchNorm2d(3).double(), nn.BatchNorm2d(3).double()
    set_norms(with_empty, [*batches(), torch.zeros(0, 3, 7, 7, dtype=torch.float64)])
    set_norms(without, batches())
    assert torch.equal(statistics(with_empty), statistics(without))
    untouched = nn.BatchNorm2d(3)
    set_norms(untouched, [torch.zeros(0, 3, 7, 7)])
    assert torch.equal(statistics(untouched), statistics(nn.BatchNorm2d(3)))
