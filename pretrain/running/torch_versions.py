"""Differences between supported versions of torch, from 2.6 on.

- The option of DistributedDataParallel that sends buffers to all processes before a forward pass is
  `forward_sync_buffers` in torch 2.15, and `broadcast_buffers` in torch 2.11 and earlier.
- torch 2.15 has `isolate_recompiles` for compiled modules; torch 2.11 and earlier do not. Without
  it, all compiled modules share the limit of 8 graphs, which is too low for the stages of DINO on
  several GPUs and for LooC++ with three heads.
- torch.compile of torch 2.6 supports a collective only with its group. That of torch 2.11 loses the
  gradient of an autograd function whose result was written in place (pretrain/parts/gather.py).
- Autocast supports the device "mtia" since torch 2.7.
- No version has an error class for CPU memory.
- Since torch 2.9, each backend has a separate attribute for the precision of float32 products;
  transfer/process_state.py reads it if the common setting cannot be read.

pretrain/parts/sync_bn.py calls private kernels of nn.SyncBatchNorm. A test compares their arguments
with the passed ones.
"""

import inspect
from typing import Any

import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

SHARED_GRAPH_LIMIT = 64
"""Maximum number of graphs of all compiled modules, if torch does not limit each one's."""
CPU_MEMORY = ("DefaultCPUAllocator", "t allocate memory")
"""Phrases in the errors of torch if the CPU's memory is used up."""


def data_parallel(network: nn.Module, device: torch.device) -> DistributedDataParallel:
    """Wrap a network in DDP without buffer synchronization.

    Batch-norm statistics are per process or synchronized by their norm layers, and queues are equal
    on all processes.
    """
    parameters = inspect.signature(DistributedDataParallel).parameters
    name = next(n for n in ("forward_sync_buffers", "broadcast_buffers") if n in parameters)
    options: dict[str, Any] = {name: False}
    device_ids = [device.index] if device.type == "cuda" else None
    return DistributedDataParallel(
        network, device_ids=device_ids, gradient_as_bucket_view=True, **options
    )


def compile_module(module: nn.Module, *, backend: str = "inductor") -> None:
    """Compile a module in place, with one graph per input size.

    It is compiled at its first call. Symbolic sizes give slower kernels. Beyond its limit of
    graphs, torch would run uncompiled code.
    """
    options: dict[str, Any] = {}
    if "isolate_recompiles" in inspect.signature(torch.compile).parameters:
        options["isolate_recompiles"] = True
    else:
        torch._dynamo.config.cache_size_limit = SHARED_GRAPH_LIMIT
    module.compile(backend=backend, dynamic=False, **options)


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error says that the memory of the GPU or CPU is used up."""
    on_cpu = type(error) is RuntimeError and any(text in str(error) for text in CPU_MEMORY)
    return on_cpu or isinstance(error, MemoryError | torch.OutOfMemoryError)


def autocast_devices() -> list[str]:
    """Return the devices with autocast in this version of torch."""
    devices = ["cpu", "cuda", "xpu", "mps", "hpu", "xla"]
    try:
        torch.is_autocast_enabled("mtia")
    except RuntimeError:
        return devices
    return [*devices, "mtia"]
