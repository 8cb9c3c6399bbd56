"""Scaled gradients: CO2 divides what the RPN sends into the shared map by 10.

Wei et al., ICLR 2021, arXiv:2010.02217.
"""

from typing import Any

import torch
from torch import Tensor


class ScaleGradient(torch.autograd.Function):
    """The identity with a scaled gradient."""

    @staticmethod
    def forward(ctx: Any, input: Tensor, factor: float) -> Tensor:
        """Return the input, of any shape; keep the factor for `backward`."""
        ctx.factor = factor
        return input.view_as(input)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0] * ctx.factor, None


def scale_gradient(input: Tensor, factor: float) -> Tensor:
    """Return the input, of any shape, unchanged; its gradient is multiplied by the factor."""
    scaled: Tensor = ScaleGradient.apply(input, factor)
    return scaled
