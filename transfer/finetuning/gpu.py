"""How a whole network trains on a GPU: memory layout, kernels, memory for images of many sizes.

A CPU keeps the layout and the kernels that the published runs of this suite were proven with.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

ALLOCATOR_VARIABLES = ("PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF")


def place(network: nn.Module, device: torch.device) -> None:
    """Move a network to its device; on a GPU its convolutions get the layout of tensor cores."""
    network.to(device)
    if device.type == "cuda":
        use_channels_last(network)


def use_channels_last(network: nn.Module) -> None:
    """Store the weights of convolutions with the channels last, which their results follow."""
    network.to(memory_format=torch.channels_last)


def fused(network: nn.Module) -> bool | None:
    """Return SGD's option `fused`: one kernel for all weights on a GPU, torch's choice elsewhere.

    With float16 it also checks the gradients on the device, where others wait for it.
    """
    return True if next(network.parameters()).is_cuda else None


@contextmanager
def measured_convolutions(device: torch.device, *, one_size: bool) -> Iterator[None]:
    """Let cudnn measure its algorithms within the context, if all images have one size.

    With images of many sizes it would measure again and again.
    """
    before = torch.backends.cudnn.benchmark
    torch.backends.cudnn.benchmark = before or (device.type == "cuda" and one_size)
    try:
        yield
    finally:
        torch.backends.cudnn.benchmark = before


def use_expandable_segments() -> None:
    """Let a GPU's memory grow in place, so that images of many sizes do not cut it to pieces.

    It has an effect until CUDA starts in this process. What the user has set stays.
    """
    if not any(name in os.environ for name in ALLOCATOR_VARIABLES):
        os.environ[ALLOCATOR_VARIABLES[0]] = "expandable_segments:True"
