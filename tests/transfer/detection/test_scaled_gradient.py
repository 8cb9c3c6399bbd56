"""Gradients divided on their way back."""

import torch

from transfer.detection.scaled_gradient import scale_gradient


def test_a_scaled_gradient_leaves_the_values() -> None:
    input = torch.randn(3, 2, requires_grad=True)
    output = scale_gradient(input, 0.1)
    assert torch.equal(output, input)
    output.backward(torch.full((3, 2), 5.0))
    assert input.grad is not None
    torch.testing.assert_close(input.grad, torch.full((3, 2), 0.5))
