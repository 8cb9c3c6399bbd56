"""Batches for the key encoder that share no batch-norm statistics with the query's.

He et al., CVPR 2020, arXiv:1911.05722, section 3.3: otherwise an encoder can recognize the key of
a query by the statistics of their common batch.
"""

import torch
import torch.distributed as dist
from torch import Tensor, nn

from pretrain.parts.gather import gather, num_processes


def split_forward(network: nn.Module, images: Tensor, num_splits: int) -> Tensor:
    """Return embeddings (n, d) of images (n, 3, H, W), computed in `num_splits` equal groups.

    Each group has its own batch statistics, as if it was on a process of its own. ValueError
    unless the images split.
    """
    if num_splits == 1:
        embeddings: Tensor = network(images)
        return embeddings
    if len(images) % num_splits:
        raise ValueError(
            f"{len(images)} images do not split into {num_splits} equal groups: "
            f"choose bn_splits so that it divides the batch of a process"
        )
    return torch.cat([network(group) for group in images.chunk(num_splits)])


@torch.no_grad()
def shuffled_forward(network: nn.Module, images: Tensor, num_splits: int) -> Tensor:
    """Return embeddings (n, d) of images (n, 3, H, W), computed in batches mixed over processes.

    A permutation of all N images, drawn by the first process, decides which process computes
    which; the embeddings return to the process and place of their image.
    """
    num_images = num_processes() * len(images)
    order = upload(torch.randperm(num_images), images.device)
    if num_processes() == 1:
        own_images = order
    else:
        dist.broadcast(order, 0)
        own_images = order.chunk(num_processes())[dist.get_rank()]
    if torch.is_autocast_enabled(images.device.type):
        # the first convolution would round them; half the bytes come from the other processes
        images = images.to(torch.get_autocast_dtype(images.device.type))
    shuffled = gather(split_forward(network, gather(images)[own_images], num_splits))
    embeddings = torch.empty_like(shuffled)
    embeddings[order] = shuffled
    return embeddings.chunk(num_processes())[dist.get_rank() if num_processes() > 1 else 0]


def upload(rows: Tensor, device: torch.device) -> Tensor:
    """Return rows of any shape on a device; the host does not wait for the device's work."""
    # a copy to a GPU from memory that is not pinned may first wait for all work before it
    return (rows.pin_memory() if device.type == "cuda" else rows).to(device, non_blocking=True)
