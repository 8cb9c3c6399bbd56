"""A ring buffer of past keys: He et al., CVPR 2020, arXiv:1911.05722, section 3.2."""

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from pretrain.parts.gather import gather


class KeyQueue(nn.Module):
    """`keys` (K, d), unit-length noise at first, and `position`, the row that is replaced next.

    Both are buffers, so that checkpoints contain them.
    """

    keys: Tensor
    position: Tensor

    def __init__(self, size: int, embedding_dim: int) -> None:
        super().__init__()
        if size < 1:
            raise ValueError(f"a queue of {size} keys holds nothing: choose a longer one")
        self.register_buffer("keys", normalize(torch.randn(size, embedding_dim), dim=1))
        self.register_buffer("position", torch.zeros((), dtype=torch.int64))

    @torch.no_grad()
    def push(self, keys: Tensor) -> None:
        """Replace the oldest N rows by the keys (n, d) of all processes; N need not divide K."""
        keys = gather(keys.to(self.keys.dtype))
        size = len(self.keys)
        if len(keys) > size:
            raise ValueError(
                f"{len(keys)} keys do not fit into a queue of {size}: "
                f"take a batch of at most {size} images or a longer queue"
            )
        # the position is a tensor: a number would make each push wait for the device
        rows = (self.position + torch.arange(len(keys), device=keys.device)) % size
        self.keys.index_copy_(0, rows, keys)
        self.position.add_(len(keys)).remainder_(size)
