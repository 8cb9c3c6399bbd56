"""FusedBatchNorm calls torch's kernels with the arguments of nn.SyncBatchNorm."""

from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.modules._functions import SyncBatchNorm

from pretrain.parts.sync_bn import FusedBatchNorm
from tests.fake_cuda import watch
from tests.fake_cuda.kernels import SYNC_NORM, run_without_kernel
from tests.fake_cuda.pretend import on_cuda, pretend_cuda, pretend_processes
from tests.fake_cuda.watch import Watch

SHAPE = (4, 3, 5, 6)
EPS, MOMENTUM = 1e-3, 0.3
Call = tuple[str, list[object]]


class Calls:
    """The kernels' calls: each tensor as its index, dtype and shape."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.found: list[Call] = []
        self.counts: set[object] = set()
        """Values that tensors were filled with."""
        self.seen: list[Tensor] = []
        run = run_without_kernel

        def record(func: Any, name: str, args: Any, kwargs: dict[str, Any]) -> Any:
            result = run(func, name, args, kwargs)
            if name in SYNC_NORM:
                created = result if isinstance(result, tuple) else (result,)
                self.found.append((name, [self._describe(value) for value in (*args, *created)]))
            return result

        patch.setattr(watch, "run_without_kernel", record)
        full = torch.full

        def filled(shape: Any, value: float, **options: Any) -> Tensor:
            self.counts.add(value)
            return full(shape, value, **options)

        patch.setattr(torch, "full", filled)

    def _describe(self, value: object) -> object:
        if not isinstance(value, Tensor):
            return value
        positions = [(t.untyped_storage()._cdata, t.storage_offset()) for t in self.seen]
        location = value.untyped_storage()._cdata, value.storage_offset()
        if location not in positions:
            self.seen.append(value)  # kept, so that no other gets its storage
            positions.append(location)
        shape = tuple(size for size in value.shape if size > 1)  # counts are a column or a row
        return positions.index(location), value.dtype, shape


def calls(kind: str, dtype: torch.dtype, *, affine: bool) -> Calls:
    """Return the calls of forward and backward on one of eight processes."""
    with pytest.MonkeyPatch.context() as patch, pretend_processes(8), pretend_cuda():
        actual = Calls(patch)
        norm = FusedBatchNorm(3, EPS, MOMENTUM, affine).to("cuda")
        rows = on_cuda(torch.empty(SHAPE, dtype=dtype)).requires_grad_()
        with Watch():
            if kind == "torch":
                statistics = norm.running_mean, norm.running_var
                world = dist.group.WORLD
                result: Tensor = SyncBatchNorm.apply(
                    rows, norm.weight, norm.bias, *statistics, EPS, MOMENTUM, world, 8
                )
            else:
                result = norm(rows)
            result.float().square().sum().backward()
        return actual


@pytest.mark.parametrize(
    ("dtype", "affine"), [(torch.float32, True), (torch.bfloat16, True), (torch.bfloat16, False)]
)
def test_the_kernels_get_what_torch_gives_them(dtype: torch.dtype, affine: bool) -> None:
    ours = calls("ours", dtype, affine=affine)
    torchs = calls("torch", dtype, affine=affine)
    assert [name for name, _ in ours.found] == list(SYNC_NORM)
    assert ours.found == torchs.found
    num_values = SHAPE[0] * SHAPE[2] * SHAPE[3]
    assert ours.counts == {num_values} <= torchs.counts
