"""Batch norm over the images of all processes, and batches mixed over them (ShuffleBN)."""

from collections.abc import Callable

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from pretrain.parts.fused_batch_norm import FusedBatchNorm
from pretrain.parts.gather import gather, num_processes, own_share

Network = Callable[[Tensor], Tensor]
"""Images (n, 3, H, W) -> embeddings (n, d)."""


def synchronize_batch_norms(network: nn.Module) -> nn.Module:
    """Make each batch norm of a network synchronous, in place; return the network.

    Names and values of parameters and buffers stay. A single process needs no change.
    """
    if num_processes() == 1:
        return network
    for module in network.modules():
        if isinstance(module, _BatchNorm):
            # the layer and its tensors stay: one that is frozen, or known to an optimizer, stays so
            module.__class__ = FusedBatchNorm
    return network


def split_forward(network: Network, images: Tensor, num_splits: int) -> Tensor:
    """Return embeddings (n, d) of images (n, 3, H, W), computed in `num_splits` equal groups.

    Each group has its own batch statistics, as if it was on a process of its own.
    """
    if num_splits == 1:
        return network(images)
    return torch.cat([network(group) for group in images.chunk(num_splits)])


@torch.no_grad()
def shuffled_forward(network: Network, images: Tensor, num_splits: int) -> Tensor:
    """Return embeddings (n, d) of images (n, 3, H, W), computed in batches mixed over processes.

    A permutation of all N images, drawn by the first process, decides which process computes
    which; the embeddings return to the process and place of their image.
    """
    order = upload(torch.randperm(num_processes() * len(images)), images.device)
    if num_processes() > 1:
        dist.broadcast(order, 0)
    if torch.is_autocast_enabled(images.device.type):
        # the first convolution would round them; half the bytes come from the other processes
        images = images.to(torch.get_autocast_dtype(images.device.type))
    shuffled = gather(split_forward(network, gather(images)[own_share(order)], num_splits))
    embeddings = torch.empty_like(shuffled)
    embeddings[order] = shuffled
    return own_share(embeddings)


def upload(rows: Tensor, device: torch.device) -> Tensor:
    """Return rows of any shape on a device; the host does not wait for the device's work."""
    # a copy to a GPU from memory that is not pinned may first wait for all work before it
    return (rows.pin_memory() if device.type == "cuda" else rows).to(device, non_blocking=True)
