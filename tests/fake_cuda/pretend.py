"""CUDA tensors without a GPU: torch tracks shapes, dtypes and devices only.

Module.to moves everything that a module has registered. A forgotten tensor stays on the CPU, and
torch raises an error where it meets a moved one.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Any
from unittest.mock import Mock

import pytest
import torch
import torch.distributed as dist
from numpy.typing import NDArray
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode, unset_fake_temporarily
from torch.testing._internal.distributed.fake_pg import FakeStore

from tests.fake_cuda.graph import run_backward
from tests.fake_cuda.watch import forget_pinned, pinned_copy

CUDA = torch.device("cuda", 0)
RANK = 3
"""Rank of the pretended process, neither first nor last of eight."""


@contextmanager
def pretend_processes(num_processes: int) -> Iterator[None]:
    """Join a fake process group that claims to be nccl.

    Its collectives do nothing.
    """
    if num_processes == 1:
        yield
        return
    dist.init_process_group("fake", store=FakeStore(), rank=RANK, world_size=num_processes)
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(dist, "get_backend", lambda *_: "nccl")
            yield
    finally:
        dist.destroy_process_group()


class PretendEvent:
    """An event that has already happened."""

    def __init__(self, **_: object) -> None:
        pass

    def elapsed_time(self, _: object) -> float:
        """Return the milliseconds to another event."""
        return 1.0

    def record(self) -> None:
        """Record nothing."""

    def synchronize(self) -> None:
        """Return without waiting."""


@contextmanager
def pretend_cuda() -> Iterator[None]:
    """Create fake tensors on "cuda", with the autocast rules of GPUs."""
    stream = Mock(return_value=Mock(spec=["record_event", "wait_event", "wait_stream"]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(torch.cuda, "_lazy_init", lambda: None)
        patch.setattr(torch.cuda, "get_device_capability", lambda *_: (9, 0))
        patch.setattr(torch.cuda, "manual_seed_all", lambda _: None)
        patch.setattr(torch.cuda, "Stream", stream)
        patch.setattr(torch.cuda, "Event", PretendEvent)
        patch.setattr(torch.cuda, "current_stream", stream)
        patch.setattr(torch.cuda, "stream", nullcontext)
        patch.setattr(torch.cuda, "is_bf16_supported", lambda *_, **__: True)
        patch.setattr(torch.cuda.amp.common, "amp_definitely_not_available", lambda: False)
        # the engine needs the device's streams, which do not exist here
        patch.setattr(Tensor, "backward", run_backward)
        patch.setattr(Tensor, "pin_memory", pinned_copy)
        patch.setattr(Tensor, "numpy", _ones_array(Tensor.numpy))
        patch.setattr(FakeTensor, "tolist", lambda tensor: tensor.cpu().numpy().tolist())
        patch.setattr(nn.Module, "_apply", _apply_registered)
        with FakeTensorMode(allow_non_fake_inputs=True):
            try:
                yield
            finally:
                forget_pinned()


def on_cuda(tensor: Tensor) -> Tensor:
    """Return a fake copy of a tensor on CUDA."""
    return tensor.detach().to(CUDA)


def _ones_array(numpy: Callable[[Tensor], NDArray[Any]]) -> Callable[[Tensor], NDArray[Any]]:
    """Return Tensor.numpy that gives ones for fake tensors on the CPU."""

    def array(tensor: Tensor) -> NDArray[Any]:
        if isinstance(tensor, FakeTensor) and tensor.device.type == "cpu":
            with unset_fake_temporarily():
                return numpy(torch.ones(tensor.shape, dtype=tensor.dtype))
        return numpy(tensor)

    return array


def _apply_registered(module: nn.Module, change: Callable[[Tensor], Tensor]) -> nn.Module:
    """Apply Module.to's change to all registered tensors; shared ones stay shared.

    New tensors replace the old ones, since a CPU tensor cannot become a fake one.
    """
    changed: dict[Tensor, Tensor] = {}

    def replace(tensor: Tensor) -> Any:
        if tensor not in changed:
            result = change(tensor.detach())
            if isinstance(tensor, nn.Parameter):
                result = nn.Parameter(result, requires_grad=tensor.requires_grad)
            changed[tensor] = result
        return changed[tensor]

    with torch.no_grad():
        for submodule in module.modules():
            for tensors in (submodule._parameters, submodule._buffers):
                tensors.update({name: replace(t) for name, t in tensors.items() if t is not None})
    return module
