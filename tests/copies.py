"""A count of the copies between devices, of which meta is one that computes nothing."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode


class Copies(TorchDispatchMode):
    """Counts tensors that come to another device."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.count = 0

    def __torch_dispatch__(
        self,
        operation: Any,
        types: Sequence[type],
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        result = operation(*args, **(kwargs or {}))
        if operation is torch.ops.aten._to_copy.default:
            self.count += args[0].device != result.device
        return result
