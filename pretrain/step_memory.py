"""Computes a lower bound on the memory of a training step."""

import copy
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.autograd.graph import saved_tensors_hooks
from torch.func import functional_call

from pretrain.method import Method
from pretrain.recipes import Recipe

FAKE_ERRORS = RuntimeError, ValueError
"""Errors of a forward pass with fake tensors.

torch raises them where a method reads a number, or needs the images of several processes: a
sub-batch of W-MSE, or batch norm over one image per process."""
END_OF_RUN = 1.0
"""Fraction of the run when nothing is frozen.
All losses count then."""


def memory_needs(method: Method, recipe: Recipe[Any], num_images: int, dtype: torch.dtype) -> int:
    """Return the bytes that a step on `num_images` images needs at least.

    Computed by a forward pass with fake tensors. Counts activations, weights and their momenta,
    buffers such as queues, and views, but no workspaces or fragmentation.
    method: on the CPU, with one process, since nothing is communicated. dtype: the one of autocast.
    If a method reads a number or images of other processes, as whitening does, its forward pass is
    counted up to that point.
    """
    fake, method = FakeTensorMode(), copy.deepcopy(method)
    tensors = {**dict(method.named_parameters()), **dict(method.named_buffers())}
    state: dict[str, Tensor] = {name: fake.from_tensor(tensor) for name, tensor in tensors.items()}
    state_storages = {tensor.untyped_storage()._cdata for tensor in state.values()}
    saved: dict[int, Tensor] = {}

    def save(tensor: Tensor) -> Tensor:
        if (storage := tensor.untyped_storage()._cdata) not in state_storages:
            saved[storage] = tensor
        return tensor

    with fake:
        sizes_px = [
            recipe.views.small_size_px if v.small else recipe.views.size_px for v in method.views
        ]
        views = [torch.empty(num_images, 3, size_px, size_px) for size_px in sizes_px]
        numbers = torch.zeros(num_images, dtype=torch.int64)
        extras = [numbers for used in (method.num_classes, method.num_images) if used]
        autocast = torch.autocast("cpu", dtype, enabled=dtype != torch.float32)
        hooks = saved_tensors_hooks(save, lambda tensor: tensor)
        with hooks, autocast, suppress(*FAKE_ERRORS):
            functional_call(method, state, (views, END_OF_RUN, *extras))
    trained = sum(p.nbytes for p in method.parameters() if p.requires_grad)
    activations = sum(tensor.untyped_storage().nbytes() for tensor in saved.values())
    # each trained weight has a momentum; gradients reuse the memory of activations
    networks = sum(tensor.nbytes for tensor in tensors.values()) + trained
    # the next step's views are created while this step's are still referenced
    return activations + networks + 2 * sum(view.nbytes for view in views)
