"""Batch norm over the images of all processes, and ShuffleBN.

nn.SyncBatchNorm allows different numbers of rows per process: it reads the gathered counts, and so
waits for the device in each layer. This one assumes equal numbers. CPUs have no such kernels, and
torch.compile cannot trace them. In both cases, plain tensor operations are used instead, which
torch.compile fuses.
"""

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules._functions import SyncBatchNorm
from torch.nn.modules.batchnorm import _BatchNorm

from pretrain.parts.gather import gather, gather_with_gradient, num_processes, own_share
from pretrain.parts.losses import at_least_float32

Network = Callable[[Tensor], Tensor]
"""Images (n, 3, H, W) -> embeddings (n, d)."""


def synchronize_batch_norms(network: nn.Module) -> nn.Module:
    """Make every batch norm of a network synchronous, in place.

    Returns the network. Names and values of parameters and buffers do not change. A single process
    needs no change.
    """
    if num_processes() == 1:
        return network
    for module in network.modules():
        if isinstance(module, _BatchNorm):
            # keep the layer and its tensors: they may be frozen or referenced by an optimizer
            module.__class__ = FusedBatchNorm
    return network


class FusedBatchNorm(_BatchNorm):
    """Batch norm over the images of all processes.

    All processes must have the same number of images. It uses torch's fused kernels, tracks running
    statistics, and never waits for the device.
    """

    momentum: float
    running_mean: Tensor
    running_var: Tensor
    num_batches_tracked: Tensor

    def forward(self, rows: Tensor) -> Tensor:
        """Normalize rows (n, C, ...) by the statistics of all N images."""
        if not self.training or num_processes() == 1:
            normalized: Tensor = super().forward(rows)
            return normalized
        self.num_batches_tracked.add_(1)
        if not has_kernels(rows):
            return self._by_formula(rows)
        running = self.running_mean, self.running_var
        fused: Tensor = _Normalize.apply(
            rows, self.weight, self.bias, running, self.eps, self.momentum
        )
        return fused

    def _by_formula(self, rows: Tensor) -> Tensor:
        """Normalize rows like the fused kernels, by plain tensor operations."""
        precise = at_least_float32(rows)
        axes = [axis for axis in range(rows.ndim) if axis != 1]
        moments = torch.stack(torch.var_mean(precise, axes, correction=0))
        variances, means = gather_with_gradient(moments[None]).unbind(dim=1)
        mean = means.mean(dim=0)
        variance = variances.mean(dim=0) + means.var(dim=0, correction=0)
        total = len(means) * rows.numel() // rows.shape[1]
        with torch.no_grad():
            self.running_mean.lerp_(mean.to(self.running_mean.dtype), self.momentum)
            unbiased = (variance * total / (total - 1)).to(self.running_var.dtype)
            self.running_var.lerp_(unbiased, self.momentum)
        shape = [1, -1] + [1] * (rows.ndim - 2)
        invstd = (variance + self.eps).rsqrt()
        normalized = (precise - mean.view(shape)) * invstd.view(shape)
        if self.affine:
            normalized = normalized * self.weight.view(shape) + self.bias.view(shape)
        return normalized.to(rows.dtype)

    def _check_input_dim(self, input: Tensor) -> None:
        """Accept any number of axes."""


def has_kernels(rows: Tensor) -> bool:
    """Return whether fused kernels can be used: on a GPU, outside torch.compile."""
    return rows.is_cuda and not torch.compiler.is_compiling()


class _Normalize(SyncBatchNorm):
    """The function of nn.SyncBatchNorm, but without gathering counts, which are known here.

    The backward pass is torch's: it reads no count.
    """

    @staticmethod
    def forward(  # type: ignore[override]
        ctx: Any,
        rows: Tensor,
        weight: Tensor | None,
        bias: Tensor | None,
        running: tuple[Tensor, Tensor],
        eps: float,
        momentum: float,
    ) -> Tensor:
        if not rows.is_contiguous(memory_format=torch.channels_last):
            rows = rows.contiguous()
        local = torch.cat(torch.batch_norm_stats(rows, eps))
        gathered = gather(local[None])
        means, invstds = gathered.chunk(2, dim=1)
        # the kernel reads the counts in the dtype of the running statistics
        per_channel = rows.numel() // rows.shape[1]
        counts = torch.full(
            (len(gathered),), per_channel, dtype=running[0].dtype, device=rows.device
        )
        mean, invstd = torch.batch_norm_gather_stats_with_counts(
            rows, means, invstds, *running, momentum, eps, counts
        )
        ctx.process_group = dist.group.WORLD
        ctx.save_for_backward(rows, weight, mean, invstd, counts.to(torch.int32))
        return torch.batch_norm_elemt(rows, weight, bias, mean, invstd, eps)


def split_forward(network: Network, images: Tensor, num_splits: int) -> Tensor:
    """Return embeddings (n, d), computed in equal groups.

    images (n, 3, H, W). Each of the `num_splits` groups has its own batch statistics, as if it was
    on its own process.
    """
    return torch.cat([network(group) for group in images.chunk(num_splits)])


@torch.no_grad()
def shuffled_forward(network: Network, images: Tensor, num_splits: int) -> Tensor:
    """Return embeddings (n, d), with batches shuffled over processes.

    images (n, 3, H, W). A permutation of all N images, equal on all processes if their seeds are
    equal, decides which process embeds which image. The embeddings are returned to the process and
    position of their image.
    """
    order = upload(torch.randperm(num_processes() * len(images)), images.device)
    if torch.is_autocast_enabled(images.device.type):
        # the first convolution would round them anyway, and this halves the communication
        images = images.to(torch.get_autocast_dtype(images.device.type))
    shuffled = gather(split_forward(network, gather(images)[own_share(order)], num_splits))
    embeddings = torch.empty_like(shuffled)
    embeddings[order] = shuffled
    return own_share(embeddings)


def upload(rows: Tensor, device: torch.device) -> Tensor:
    """Copy a tensor to a device without waiting for it."""
    # a copy to a GPU from unpinned memory may wait for all earlier work
    return (rows.pin_memory() if device.type == "cuda" else rows).to(device, non_blocking=True)
