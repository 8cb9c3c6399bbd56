"""The GPU tests' bounds accept roundings, and reject mistakes and TF32."""

import torch
from torch import Tensor

from tests.gpu.findings import Findings
from tests.gpu.rounding import perturb

ROWS, COLUMNS = 64, 4608


def results(rows: Tensor, weights: Tensor) -> dict[str, Tensor]:
    rows.grad = None
    products = rows.requires_grad_() @ weights
    loss = products.square().mean()
    loss.backward()
    assert rows.grad is not None
    return {"loss": loss.detach(), "products": products.detach(), "gradient": rows.grad}


def inputs() -> tuple[Tensor, Tensor]:
    draw = torch.Generator().manual_seed(0)
    return torch.randn(ROWS, COLUMNS, generator=draw), torch.randn(COLUMNS, generator=draw)


def as_tf32(values: Tensor) -> Tensor:
    """Return values rounded to the ten mantissa bits of TF32.

    The exponents are float32's.
    """
    return ((values.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


def faults(actual: dict[str, Tensor]) -> list[str]:
    """Return the findings of a comparison with the exact float32 results."""
    changed = inputs()
    perturb(changed, torch.float32, torch.Generator().manual_seed(1))
    findings = Findings()
    findings.compare(actual, results(*inputs()), [results(*changed)])
    return findings.failures


def test_bounds_accept_reordered_sums_only() -> None:
    rows, weights = inputs()
    order = torch.randperm(COLUMNS, generator=torch.Generator().manual_seed(2))
    right = results(rows, weights)
    reordered = results(rows.detach()[:, order], weights[order])
    assert faults(reordered | {"gradient": reordered["gradient"][:, order.argsort()]}) == []
    assert faults(right | {"gradient": 1.01 * right["gradient"]}) != []
    assert faults(results(as_tf32(rows.detach()), as_tf32(weights))) != []
    assert faults(right | {"loss": torch.tensor(torch.nan)}) != []
