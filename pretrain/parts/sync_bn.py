"""Batch norm over the images of all processes."""

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from pretrain.parts.fused_batch_norm import FusedBatchNorm
from pretrain.parts.gather import num_processes, sum_with_gradient
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
