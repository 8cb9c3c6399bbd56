"""The memory that a step needs at least, known before it is made."""

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

BLIND = RuntimeError, ValueError
"""Errors where a method looks at a number, as torch has them without numbers, or at more images
than those of one process: a sub-batch of W-MSE, or a synchronous norm for one image on each."""
AFTER_EVERY_FREEZE = 1.0
"""Share of a run at which all its weights are trained and all its losses count."""


def memory_needs(method: Method, recipe: Recipe[Any], num_images: int, dtype: torch.dtype) -> int:
    """Return the bytes of a step on `num_images` images by a forward pass without any numbers.

    They are those of activations, weights and their momenta, buffers such as queues, and views,
    without workspaces and what the allocator cannot use. method: on the CPU, and not among several
    processes, since nothing is exchanged. dtype: that of autocast. A method that looks at a number,
    or at images of other processes, as whitening does, is followed up to there.
    """
    fake, method = FakeTensorMode(), copy.deepcopy(method)
    tensors = {**dict(method.named_parameters()), **dict(method.named_buffers())}
    state: dict[str, Tensor] = {name: fake.from_tensor(tensor) for name, tensor in tensors.items()}
    owned = {tensor.untyped_storage()._cdata for tensor in state.values()}
    kept: dict[int, Tensor] = {}

    def keep(tensor: Tensor) -> Tensor:
        if (storage := tensor.untyped_storage()._cdata) not in owned:
            kept[storage] = tensor
        return tensor

    with fake:
        sides = [
            recipe.views.small_size_px if v.small else recipe.views.size_px for v in method.views
        ]
        views = [torch.empty(num_images, 3, side, side) for side in sides]
        numbers = torch.zeros(num_images, dtype=torch.int64)
        extras = [numbers for used in (method.num_classes, method.num_images) if used]
        low = torch.autocast("cpu", dtype, enabled=dtype != torch.float32)
        hooks = saved_tensors_hooks(keep, lambda tensor: tensor)
        with hooks, low, suppress(*BLIND):
            functional_call(method, state, (views, AFTER_EVERY_FREEZE, *extras))
    trained = sum(p.nbytes for p in method.parameters() if p.requires_grad)
    activations = sum(tensor.untyped_storage().nbytes() for tensor in kept.values())
    # a trained weight has a momentum; gradients take what activations leave
    networks = sum(tensor.nbytes for tensor in tensors.values()) + trained
    # the views of the next step are made while those of this one are still referenced
    return activations + networks + 2 * sum(view.nbytes for view in views)
