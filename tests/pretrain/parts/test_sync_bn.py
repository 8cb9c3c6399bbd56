"""Batch norm over processes against plain batch norm of all rows; ShuffleBN."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pretrain.parts import sync_bn
from pretrain.parts.sync_bn import (
    FusedBatchNorm,
    has_kernels,
    shuffled_forward,
    split_forward,
    synchronize_batch_norms,
)
from tests.rounding import assert_equal_up_to_rounding

NUM_IMAGES, CHANNELS = 8, 5


def rows_and_weights(shape: tuple[int, ...], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Rows (n, C, ...), not centered or scaled, and loss weights."""
    generator = torch.Generator().manual_seed(3)
    rows = 2 + 3 * torch.randn(NUM_IMAGES, *shape, generator=generator, dtype=torch.float64)
    weights = torch.randn(NUM_IMAGES, *shape, generator=generator, dtype=torch.float64)
    return rows.to(dtype), weights.to(dtype)


def normed(norm: nn.Module, rows: Tensor, weights: Tensor) -> dict[str, Tensor]:
    """Outputs, gradients and statistics of one step of a norm.

    Its parameters are drawn with seed 0.
    """
    torch.manual_seed(0)
    for parameter in norm.parameters():
        nn.init.normal_(parameter)
    leaves = rows.clone().requires_grad_()
    outputs = norm.to(rows.dtype).train()(leaves)
    (outputs * weights).sum().backward()
    assert leaves.grad is not None
    gradients = {f"of {name}": p.grad for name, p in norm.named_parameters() if p.grad is not None}
    buffers = {name: buffer.clone() for name, buffer in norm.named_buffers()}
    return {"rows": outputs.detach(), "row gradients": leaves.grad, **gradients, **buffers}


@pytest.fixture
def synchronized_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use the synchronized path with one process, which has all rows."""
    counts = iter([2])  # the layer reads it once; afterwards there is one process
    monkeypatch.setattr(sync_bn, "num_processes", lambda: next(counts, 1))


@pytest.mark.usefixtures("synchronized_path")
@pytest.mark.parametrize("shape", [(CHANNELS,), (CHANNELS, 3), (CHANNELS, 3, 2)])
@pytest.mark.parametrize("options", [{"momentum": 0.3, "eps": 1e-3}, {"affine": False}], ids=str)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_formulas_are_those_of_plain_batch_norm(
    dtype: torch.dtype, options: dict[str, Any], shape: tuple[int, ...]
) -> None:
    rows, weights = rows_and_weights(shape, dtype)
    plain = nn.BatchNorm2d if len(shape) == 3 else nn.BatchNorm1d
    expected = normed(plain(CHANNELS, **options), rows, weights)
    result = normed(FusedBatchNorm(CHANNELS, **options), rows, weights)
    assert_equal_up_to_rounding(result, expected)


@pytest.mark.usefixtures("synchronized_path")
def test_rows_in_bfloat16_keep_their_type_and_layout() -> None:
    rows = torch.randn(4, CHANNELS, 3, 2).bfloat16().contiguous(memory_format=torch.channels_last)
    rows.requires_grad_()
    outputs = FusedBatchNorm(CHANNELS)(rows)
    outputs.float().sum().backward()
    assert rows.grad is not None
    for values in (outputs, rows.grad):
        assert values.dtype == torch.bfloat16
        assert values.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.usefixtures("synchronized_path")
def test_no_number_is_read_from_the_device() -> None:
    rows = torch.empty(4, 3, device="meta", requires_grad=True)
    # a tensor without values raises where one is read
    FusedBatchNorm(3, device="meta")(rows).sum().backward()
    assert rows.grad is not None


def test_a_compiled_graph_takes_the_formulas_also_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = SimpleNamespace(is_cuda=True)
    assert has_kernels(rows)  # type: ignore[arg-type]
    monkeypatch.setattr(torch.compiler, "is_compiling", lambda: True)
    assert not has_kernels(rows)  # type: ignore[arg-type]


def test_batch_norms_are_converted_only_for_several_processes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    network = nn.Sequential(nn.Linear(3, 4), nn.Sequential(nn.BatchNorm1d(4))).double()
    network.requires_grad_(False)
    previous = network.state_dict(keep_vars=True)
    synchronize_batch_norms(network)
    assert isinstance(network.get_submodule("1.0"), nn.BatchNorm1d)
    monkeypatch.setattr("pretrain.parts.sync_bn.num_processes", lambda: 2)
    converted = synchronize_batch_norms(network).state_dict(keep_vars=True)
    assert isinstance(network.get_submodule("1.0"), FusedBatchNorm)
    assert list(converted) == list(previous)
    assert all(converted[name] is tensor for name, tensor in previous.items())


class Recorder(nn.Module):
    """Multiplies by ten and records which rows came together."""

    def __init__(self) -> None:
        super().__init__()
        self.groups: list[list[float]] = []

    def forward(self, images: Tensor) -> Tensor:
        self.groups.append(sorted(images.flatten().tolist()))
        return images * 10


def test_groups_are_mixed_anew_and_cover_every_image_once() -> None:
    torch.manual_seed(0)
    network = Recorder()
    images = torch.arange(12.0)[:, None]
    for _ in range(2):
        assert torch.equal(shuffled_forward(network, images, 3), images * 10)
    first, second = network.groups[:3], network.groups[3:]
    assert sorted(row for group in first for row in group) == images.flatten().tolist()
    assert first != second
    assert first[0] != [0.0, 1.0, 2.0, 3.0]


def test_each_split_has_its_own_batch_statistics() -> None:
    images = torch.randn(8, 4)
    norm = nn.BatchNorm1d(4)
    expected = torch.cat([nn.BatchNorm1d(4)(images[:4]), nn.BatchNorm1d(4)(images[4:])])
    torch.testing.assert_close(split_forward(norm, images, 2), expected)


def test_under_autocast_images_are_gathered_in_the_type_of_the_network(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gathered: list[Tensor] = []

    def gather(rows: Tensor) -> Tensor:
        gathered.append(rows)
        return rows

    monkeypatch.setattr("pretrain.parts.sync_bn.gather", gather)
    images, network = torch.randn(4, 3, 8, 8), nn.Conv2d(3, 2, kernel_size=3)
    with torch.autocast("cpu", torch.bfloat16):
        embeddings = shuffled_forward(network, images, 1)
        expected = network(images)
    assert [rows.dtype for rows in gathered] == [torch.bfloat16] * 2
    assert torch.equal(embeddings, expected)
    shuffled_forward(network, images, 1)
    assert gathered[-1].dtype == torch.float32
