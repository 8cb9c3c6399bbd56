"""Differences between two computations of one result, with bounds.

Convolutions and products add up in another order on a GPU than on a CPU, and may use other
algorithms. A sum of k products errs like sqrt(k) roundings. The largest sums of a ResNet have 4,608
products, so 68 roundings. The errors of some 55 layers add up like sqrt(55) of them: 500 roundings
of half an eps. Two such results differ by twice that. TF32 rounds each factor to 2^-11, which is
4,000 of these roundings, and does not pass.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from benchmarks.gpu.evaluation import summed_losses
from tests.gpu.rounding import (
    FLOAT32_UNITS,
    Results,
    difference,
    require_same_names,
    share_of_bound,
)
from transfer.finetuning.schedule import Precision

NETWORK_ROUNDINGS = 500
"""Difference, in eps of the largest value, between two network passes."""


@dataclass(kw_only=True)
class Findings:
    """Differences that a test measured, each with its bound.

    The test fails if one is above its bound.
    """

    properties: list[tuple[str, float | str]] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def add(self, name: str, difference: float, bound: float) -> None:
        """Note a difference; NaN is above every bound."""
        self.properties += [(name, difference), (f"{name}: bound", bound)]
        if not difference <= bound:
            self.failures.append(f"{name} {difference:.2g} above {bound:.2g}")

    def require(self, name: str, holds: bool, reason: str) -> None:
        """Note a condition that is not a number."""
        self.properties.append((name, "yes" if holds else reason))
        if not holds:
            self.failures.append(f"{name}: {reason}")

    def compare(
        self,
        actual: Results,
        expected: Results,
        moved: Sequence[Results],
        *,
        units: float = FLOAT32_UNITS,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        """Note the loss, and the result with the largest relative distance.

        The distance is in units of the bound.

        moved: the expected results after all inputs changed by one unit of rounding of the dtype.
        """
        require_same_names(actual, expected)
        differences = {
            name: difference(actual[name], value, [item[name] for item in moved], units, dtype)
            for name, value in expected.items()
        }
        worst = max(differences, key=lambda name: share_of_bound(differences[name]))
        self.add(f"worst of {len(differences)}: {worst}", *differences[worst])
        if "loss" in differences and worst != "loss":
            self.add("loss", *differences["loss"])


def one_pass(
    network: nn.Module, samples: Sequence[object], device: torch.device, precision: Precision
) -> tuple[float, bool]:
    """Run forward and backward.

    Return the sum of the losses, and whether all values are finite.
    """
    total = summed_losses(network, samples, device, precision)
    total.backward()
    gradients = [p.grad for p in network.parameters() if p.grad is not None]
    finite = all(bool(tensor.isfinite().all()) for tensor in (total.detach(), *gradients))
    return total.item(), finite


def roundings(dtype: torch.dtype, operations: float = NETWORK_ROUNDINGS) -> float:
    """Return the bound on differences, relative to the largest intermediate value."""
    return operations * torch.finfo(dtype).eps


def relative_difference(actual: Tensor, expected: Tensor) -> float:
    """Return the largest difference in units of the largest expected value.

    NaN if not finite. Raises a ValueError if the shapes differ.
    """
    ours, theirs = actual.detach().cpu().double(), expected.detach().cpu().double()
    if ours.shape != theirs.shape:
        raise ValueError(f"shape {tuple(ours.shape)} instead of {tuple(theirs.shape)}")
    if not bool(ours.isfinite().all()):
        return float("nan")
    return float((ours - theirs).abs().max() / theirs.abs().max().clamp_min(1e-12))


def worst_relative_difference(
    actual: Mapping[str, Tensor], expected: Mapping[str, Tensor]
) -> float:
    """Return the largest relative difference of tensors with equal names and shapes.

    NaN counts as the largest.
    """
    require_same_names(actual, expected)
    differences = [relative_difference(actual[name], expected[name]) for name in expected]
    return max(differences, key=lambda value: float("inf") if value != value else value)


def norm_difference(actual: Mapping[str, Tensor], expected: Mapping[str, Tensor]) -> float:
    """Return the norm of all differences relative to the expected norm.

    Both have the same names and shapes.
    """
    require_same_names(actual, expected)
    squared_distance, squared_norm = 0.0, 0.0
    for name, theirs in expected.items():
        exact = theirs.detach().cpu().double()
        squared_distance += float((actual[name].detach().cpu().double() - exact).square().sum())
        squared_norm += float(exact.square().sum())
    return float((squared_distance / max(squared_norm, 1e-300)) ** 0.5)


@contextmanager
def exact_float32() -> Iterator[None]:
    """Compute in float32 without TF32, and with deterministic algorithms."""
    matmul = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = False
    try:
        with torch.backends.cudnn.flags(
            enabled=True, benchmark=False, deterministic=True, allow_tf32=False
        ):
            yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = matmul
