"""Batch norm over processes by kernels: its formulas against plain batch norm of all rows."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pretrain.parts import fused_batch_norm
from pretrain.parts.fused_batch_norm import FusedBatchNorm, has_kernels
from pretrain.parts.sync_bn import GlobalBatchNorm, synchronize_batch_norms
from tests.two_processes import two_processes

NUM_IMAGES, CHANNELS = 8, 5
DTYPES = (torch.float64, torch.float32)
TOLERANCES = {torch.float64: 1e-12, torch.float32: 500 * torch.finfo(torch.float32).eps}


def rows_and_weights(shape: tuple[int, ...], dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Rows (n, C, ...), off center and of different scale, and weights of a loss."""
    generator = torch.Generator().manual_seed(3)
    rows = 2 + 3 * torch.randn(NUM_IMAGES, *shape, generator=generator, dtype=torch.float64)
    weights = torch.randn(NUM_IMAGES, *shape, generator=generator, dtype=torch.float64)
    return rows.to(dtype), weights.to(dtype)


def normed(norm: nn.Module, rows: Tensor, weights: Tensor) -> dict[str, Tensor]:
    """Outputs, gradients and statistics of one step of a norm with parameters from seed 0."""
    torch.manual_seed(0)
    for parameter in norm.parameters():
        nn.init.normal_(parameter)
    leaves = rows.clone().requires_grad_()
    outputs = norm.to(rows.dtype).train()(leaves)
    (outputs * weights).sum().backward()
    assert leaves.grad is not None
    gradients = {f"of {name}": p.grad for name, p in norm.named_parameters() if p.grad is not None}
    return {"rows": outputs.detach(), "row gradients": leaves.grad, **gradients, **buffers(norm)}


def buffers(norm: nn.Module) -> dict[str, Tensor]:
    return {name: buffer.clone() for name, buffer in norm.named_buffers()}


def measure_losses(rank: int, num_processes: int) -> dict[str, Any]:
    size = NUM_IMAGES // num_processes
    own = slice(rank * size, (rank + 1) * size)
    results: dict[str, Any] = {}
    for dtype in DTYPES:
        for shape in ((CHANNELS,), (CHANNELS, 3, 2)):
            rows, weights = (values[own] for values in rows_and_weights(shape, dtype))
            kinds = {"fused": FusedBatchNorm, "global": GlobalBatchNorm}
            for name, kind in kinds.items():
                results[f"{name} {dtype} {len(shape)}"] = normed(kind(CHANNELS), rows, weights)
    return results


@pytest.fixture(scope="module")
def halves(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return two_processes(
        "tests.pretrain.parts.test_fused_batch_norm", tmp_path_factory.mktemp("two")
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["fused", "global"])
@pytest.mark.parametrize("shape", [(CHANNELS,), (CHANNELS, 3, 2)])
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_two_processes_compute_what_one_does_with_the_whole_batch(
    dtype: torch.dtype, shape: tuple[int, ...], kind: str, halves: list[dict[str, Any]]
) -> None:
    plain = (nn.BatchNorm1d if len(shape) == 1 else nn.BatchNorm2d)(CHANNELS)
    whole = normed(plain, *rows_and_weights(shape, dtype))
    parts = [half[f"{kind} {dtype} {len(shape)}"] for half in halves]
    for name, expected in whole.items():
        if "row" in name:
            found = torch.cat([part[name] for part in parts])
        elif name.startswith("of "):  # a loop of training adds or averages those of parameters
            found = parts[0][name] + parts[1][name]
        else:
            found = parts[1][name]
        tolerance = TOLERANCES[dtype] * max(1.0, float(expected.abs().max()))
        torch.testing.assert_close(found, expected, rtol=0, atol=tolerance)


@pytest.fixture
def several(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the synchronous way with one process, whose rows are all rows."""
    counts = iter([2])  # asked for once by the layer; afterwards there is one process
    monkeypatch.setattr(fused_batch_norm, "num_processes", lambda: next(counts, 1))


@pytest.mark.usefixtures("several")
@pytest.mark.parametrize("shape", [(CHANNELS,), (CHANNELS, 3), (CHANNELS, 3, 2)])
@pytest.mark.parametrize(
    "options", [{}, {"affine": False}, {"track_running_stats": False}], ids=str
)
def test_formulas_are_those_of_plain_batch_norm(
    options: dict[str, bool], shape: tuple[int, ...]
) -> None:
    kind = nn.BatchNorm2d if len(shape) == 3 else nn.BatchNorm1d
    rows, weights = rows_and_weights(shape, torch.float64)
    expected = normed(kind(CHANNELS, **options), rows, weights)
    found = normed(FusedBatchNorm(CHANNELS, **options), rows, weights)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-11)


@pytest.mark.usefixtures("several")
def test_rows_in_bfloat16_keep_their_type_and_layout() -> None:
    rows = torch.randn(4, CHANNELS, 3, 2).bfloat16().contiguous(memory_format=torch.channels_last)
    rows.requires_grad_()
    outputs = FusedBatchNorm(CHANNELS)(rows)
    outputs.float().sum().backward()
    assert rows.grad is not None
    for values in (outputs, rows.grad):
        assert values.dtype == torch.bfloat16
        assert values.is_contiguous(memory_format=torch.channels_last)


def test_gpus_get_the_kernels_and_a_mean_over_all_batches_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("pretrain.parts.sync_bn.num_processes", lambda: 2)
    monkeypatch.setattr("torch.distributed.get_backend", lambda: "nccl")
    layers = synchronize_batch_norms(
        nn.Sequential(nn.BatchNorm2d(3), nn.BatchNorm2d(3, momentum=None))
    )
    assert [type(layer) for layer in layers.children()] == [FusedBatchNorm, GlobalBatchNorm]


@pytest.mark.usefixtures("several")
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
