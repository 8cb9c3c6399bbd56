"""Batch norm over the images of all processes, and batches mixed over them (ShuffleBN)."""

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from pretrain.parts.fused_batch_norm import FusedBatchNorm
from pretrain.parts.gather import gather, num_processes, sum_with_gradient
from pretrain.parts.losses import at_least_float32


class GlobalBatchNorm(_BatchNorm):
    """Batch norm over all processes on any device, by sums with a gradient."""

    def forward(self, rows: Tensor) -> Tensor:
        """Return rows (n, C, ...) normalized by the statistics of all N images."""
        if not self.training or num_processes() == 1:
            normalized: Tensor = super().forward(rows)
            return normalized
        with torch.autocast(rows.device.type, enabled=False):
            return self._normalize(at_least_float32(rows)).to(rows.dtype)

    def _check_input_dim(self, input: Tensor) -> None:
        """Accept any number of axes."""

    def _normalize(self, rows: Tensor) -> Tensor:
        others = [axis for axis in range(rows.ndim) if axis != 1]
        count = rows.numel() // rows.shape[1] * num_processes()
        mean = sum_with_gradient(rows.sum(others)) / count
        shape = [1, -1] + [1] * (rows.ndim - 2)
        centered = rows - mean.view(shape)
        variance = sum_with_gradient(centered.square().sum(others)) / count
        self._update_running_statistics(mean.detach(), variance.detach() * count / (count - 1))
        normalized: Tensor = centered * (variance + self.eps).rsqrt().view(shape)
        if self.affine:
            normalized = normalized * self.weight.view(shape) + self.bias.view(shape)
        return normalized

    def _update_running_statistics(self, mean: Tensor, variance: Tensor) -> None:
        if (
            self.running_mean is None
            or self.running_var is None
            or self.num_batches_tracked is None
        ):
            return
        self.num_batches_tracked.add_(1)
        # without a momentum torch keeps the mean over all batches; the counter stays on its device,
        # since reading it would wait for the device and break a compiled graph
        if self.momentum is None:
            rate = self.num_batches_tracked.double().reciprocal().to(mean.dtype)
            self.running_mean.lerp_(mean, rate)
            self.running_var.lerp_(variance, rate)
        else:
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(variance, self.momentum)


def synchronize_batch_norms(network: nn.Module) -> nn.Module:
    """Make each batch norm of a network synchronous, in place; return the network.

    Names and values of parameters and buffers stay. A single process needs no change.
    """
    if num_processes() == 1:
        return network
    for module in list(network.modules()):
        for name, child in list(module.named_children()):
            if isinstance(child, _BatchNorm):
                setattr(module, name, _synchronous_copy(child))
    return network


def _synchronous_copy(norm: _BatchNorm) -> _BatchNorm:
    # by the backend and not by the device: networks are made before they are moved to a GPU
    fused = dist.get_backend() == "nccl" and norm.momentum is not None
    kind = FusedBatchNorm if fused else GlobalBatchNorm
    twin = kind(norm.num_features, norm.eps, norm.momentum, norm.affine, norm.track_running_stats)
    # the tensors themselves: one that is frozen, or known to an optimizer, stays so
    for name, parameter in norm.named_parameters():
        setattr(twin, name, parameter)
    for name, buffer in norm.named_buffers():
        setattr(twin, name, buffer)
    return twin.train(norm.training)


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
