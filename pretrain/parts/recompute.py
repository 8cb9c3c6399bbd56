"""Activations that are computed again instead of kept: Chen et al., 2016, arXiv:1604.06174."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from torchvision.models.resnet import BasicBlock, Bottleneck


def checkpoint_activations(network: nn.Module) -> None:
    """Let each residual block keep its input alone, and compute its maps again for its gradient.

    Losses, gradients and running statistics stay the same, since a block sees the same batch twice.
    """
    for block in network.modules():
        if isinstance(block, BasicBlock | Bottleneck):
            block.forward = partial(_forward, block, block.forward)


def _forward(block: nn.Module, plain: Callable[[Tensor], Tensor], maps: Tensor) -> Tensor:
    """Return what a block gives for maps (n, C, H, W)."""
    if not torch.is_grad_enabled():
        return plain(maps)
    result: Tensor = checkpoint(
        plain,
        maps,
        use_reentrant=False,
        preserve_rng_state=False,  # nothing in a block is drawn
        context_fn=lambda: (nullcontext(), _unchanged_statistics(block)),
    )
    return result


@contextmanager
def _unchanged_statistics(block: nn.Module) -> Iterator[None]:
    """Give the norms copies of their running statistics, which the first pass has updated."""
    own = [(module, name, kept) for module in block.modules() for name, kept in _buffers(module)]
    for module, name, kept in own:
        setattr(module, name, kept.clone())
    try:
        yield
    finally:
        for module, name, kept in own:
            setattr(module, name, kept)


def _buffers(module: nn.Module) -> list[tuple[str, Tensor]]:
    return list(module.named_buffers(recurse=False))
