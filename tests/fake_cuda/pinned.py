"""Which pretended tensors lie in pinned memory, the only one that copies without a wait."""

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import unset_fake_temporarily

_storages: dict[int, torch.UntypedStorage] = {}
"""Pinned storages by their addresses; they are kept, so that no other gets the same one."""


def mark_pinned(tensor: Tensor) -> Tensor:
    """Remember that a tensor and all views of it are in pinned memory; return the tensor."""
    storage = tensor.untyped_storage()
    _storages[storage._cdata] = storage
    return tensor


def is_pinned(tensor: Tensor) -> bool:
    """Return whether a tensor, or the one that it is a view of, was marked."""
    return tensor.untyped_storage()._cdata in _storages


def pinned_copy(tensor: Tensor) -> Tensor:
    """Return what Tensor.pin_memory does; the copy of a tensor with data keeps its data."""
    with unset_fake_temporarily():
        return mark_pinned(tensor.clone())


def forget_pinned() -> None:
    """Give all pinned memory back."""
    _storages.clear()
