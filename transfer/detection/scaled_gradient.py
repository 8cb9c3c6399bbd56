"""A shared map whose users pull at it with unequal strength."""

from typing import Any

import torch
from torch import Tensor


class ScaleGradient(torch.autograd.Function):
    """Identity whose gradient is scaled."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return input.view_as(input)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0] * ctx.factor, None


def scale_gradient(input: Tensor, factor: float) -> Tensor:
    """The same values; what flows back is multiplied by the factor."""
    scaled: Tensor = ScaleGradient.apply(input, factor)
    return scaled
