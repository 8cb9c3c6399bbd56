"""Batches for the key encoder that share no batch-norm statistics with the query's.

He et al., CVPR 2020, arXiv:1911.05722, section 3.3: otherwise an encoder can tell a query's key
by the statistics of the batch they came in.
"""

import torch
import torch.distributed as dist
from torch import Tensor, nn

from pretrain.parts.gather import gather, num_processes


def split_forward(network: nn.Module, images: Tensor, num_splits: int) -> Tensor:
    """(n, 3, H, W) -> (n, d), in `num_splits` equal groups, each with its own batch statistics.

    It lets one process stand for as many processes as there are groups.
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
    """Embeddings (n, d) of images (n, 3, H, W), computed in batches mixed over all processes.

    One permutation of all N images, drawn on the first process, decides who computes which; the
    embeddings come back to their images' process and place.
    """
    num_images = num_processes() * len(images)
    order = torch.randperm(num_images).to(images.device)
    if num_processes() == 1:
        mine = order
    else:
        dist.broadcast(order, 0)
        mine = order.chunk(num_processes())[dist.get_rank()]
    shuffled = gather(split_forward(network, gather(images)[mine], num_splits))
    embeddings = torch.empty_like(shuffled)
    embeddings[order] = shuffled
    return embeddings.chunk(num_processes())[dist.get_rank() if num_processes() > 1 else 0]
