"""Run autograd's graph node by node: its engine needs real devices."""

from collections import Counter
from itertools import compress
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import BackwardCFunction
from torch.autograd.graph import Node

ROOMS = ("pretrain.", "transfer.", "tests.")
"""Modules with autograd Functions that must return gradients exactly like their inputs."""


@torch.no_grad()
def run_backward(root: Tensor) -> None:
    """Add the gradients of a scalar to the leaves, as Tensor.backward does.

    Raises a TypeError if a gradient is on another device than its input. For a Function of this
    project, it also raises if data type or shape differ; the engine would convert these silently.
    """
    assert root.grad_fn is not None
    gradients: dict[Node, list[Tensor | None]] = {root.grad_fn: [torch.ones_like(root)]}
    num_missing = _count_edges(root.grad_fn)
    ready = [root.grad_fn]
    while ready:
        node = ready.pop()
        received = gradients.pop(node)
        if node.name() == "torch::autograd::AccumulateGrad":
            _accumulate(node, received[0])
            continue
        for (following, location), gradient in zip(
            _edges(node), _call(node, received), strict=True
        ):
            sums = gradients.setdefault(following, [None] * len(_inputs(following)))
            if gradient is not None:
                suited = _suit(node, gradient, _inputs(following)[location])
                earlier = sums[location]
                sums[location] = suited if earlier is None else earlier + suited
            num_missing[following] -= 1
            if num_missing[following] == 0:
                ready.append(following)


def _count_edges(root: Node) -> Counter[Node]:
    """Return how many gradients each node of the graph receives."""
    counts: Counter[Node] = Counter()
    observed, pending = {root}, [root]
    while pending:
        for following, _ in _edges(pending.pop()):
            counts[following] += 1
            if following not in observed:
                observed.add(following)
                pending.append(following)
    return counts


def _edges(node: Node) -> list[tuple[Node, int]]:
    """Return the nodes that receive a node's gradients, and their input positions."""
    return [
        (following, location)
        for following, location in node.next_functions
        if following is not None
    ]


def _inputs(node: Node) -> Any:
    """Return shape, data type and device of each received gradient."""
    return node._input_metadata


def _call(node: Node, received: list[Tensor | None]) -> tuple[Tensor | None, ...]:
    """Return the gradients of a node's inputs; None where none arrived."""
    needed = [following is not None for following, _ in node.next_functions]
    if all(gradient is None for gradient in received):
        return (None,) * sum(needed)
    if isinstance(node, BackwardCFunction):
        filled = [
            torch.zeros(expected.shape, dtype=expected.dtype, device=expected.device)
            if gradient is None
            else gradient
            for gradient, expected in zip(received, _inputs(node), strict=True)
        ]
        result = node.apply(*filled)
        needed = node.needs_input_grad  # of all arguments, also of those that are no tensors
    else:
        result = node(*received)  # type: ignore[operator]
    results = result if isinstance(result, tuple) else (result,)
    return tuple(compress(results, needed))


def _suit(node: Node, gradient: Tensor, expected: Any) -> Tensor:
    """Return the gradient in the shape and dtype of its input."""
    ours = isinstance(node, BackwardCFunction) and node._forward_cls.__module__.startswith(ROOMS)
    result = (gradient.device, gradient.dtype, tuple(gradient.shape))
    target = (expected.device, expected.dtype, tuple(expected.shape))
    if result[0] != target[0] or (ours and result != target):
        raise TypeError(f"{node.name()} returns a gradient {result} for an input {target}")
    return gradient.sum_to_size(expected.shape).to(expected.dtype)


def _accumulate(node: Any, gradient: Tensor | None) -> None:
    """Add a gradient to its leaf's, in the leaf's memory layout."""
    if gradient is not None:
        leaf: Tensor = node.variable
        if gradient.stride() != leaf.stride():
            gradient = torch.empty_like(leaf).copy_(gradient)
        leaf.grad = gradient if leaf.grad is None else leaf.grad + gradient
