"""What differs between the versions of torch that this suite supports, from 2.6 on.

- Whether DistributedDataParallel sends buffers to all processes before a forward pass is its option
  `forward_sync_buffers` in torch 2.15, and `broadcast_buffers` in torch 2.11 and earlier.
- torch 2.15 has `isolate_recompiles` for compiled modules; torch 2.11 and earlier do not. Without
  it, the limit of graphs is shared by all modules of a class.
- Autocast knows the device "mtia" since torch 2.7.
- Since torch 2.9, one backend's precision of float32 products is an attribute of its own;
  transfer/process_state.py reads it where the common setting cannot be read.

pretrain/parts/sync_bn.py calls kernels of nn.SyncBatchNorm, which are not public. A test compares
their arguments with those that it passes.
"""

import inspect
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def data_parallel(network: nn.Module, device: torch.device) -> DistributedDataParallel:
    """Return the network whose gradients are means over all processes; buffers stay as they are.

    Batch-norm statistics are per process or synchronized by their norms, and queues are equal.
    """
    parameters = inspect.signature(DistributedDataParallel).parameters
    name = next(n for n in ("forward_sync_buffers", "broadcast_buffers") if n in parameters)
    options: dict[str, Any] = {name: False}
    device_ids = [device.index] if device.type == "cuda" else None
    return DistributedDataParallel(
        network, device_ids=device_ids, gradient_as_bucket_view=True, **options
    )


def compile_module(module: nn.Module, *, backend: str = "inductor") -> None:
    """Compile a module in place when it is first called, with a graph for each size of its input.

    Symbolic sizes make slower kernels. The limit of graphs holds for each module, since beyond it
    torch runs the rest uncompiled.
    """
    options: dict[str, Any] = {}
    if "isolate_recompiles" in inspect.signature(torch.compile).parameters:
        options["isolate_recompiles"] = True
    module.compile(backend=backend, dynamic=False, **options)


def autocast_devices() -> list[str]:
    """Return the devices for which this torch has autocast."""
    known = ["cpu", "cuda", "xpu", "mps", "hpu", "xla"]
    try:
        torch.is_autocast_enabled("mtia")
    except RuntimeError:
        return known
    return [*known, "mtia"]
