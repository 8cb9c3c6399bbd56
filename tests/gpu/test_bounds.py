"""What the comparisons of this room let pass: roundings; and what they do not: mistakes, TF32."""

import torch
from torch import Tensor

from tests.gpu.findings import Findings
from tests.gpu.rounding import FLOAT32_UNITS, compare, perturb

ROWS, COLUMNS = 64, 4608


def results(rows: Tensor, weights: Tensor) -> dict[str, Tensor]:
    return {"loss": (rows @ weights).square().mean(), "products": rows @ weights}


def inputs() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(ROWS, COLUMNS, generator=generator), torch.randn(
        COLUMNS, generator=generator
    )


def worst_share(found: dict[str, Tensor]) -> float:
    """Return the worst distance in units of its bound."""
    changed = inputs()
    perturb(changed, torch.float32, torch.Generator().manual_seed(1))
    moved = results(*changed)
    worst = compare(found, results(*inputs()), [moved], units=FLOAT32_UNITS)[0]
    return worst.distance / worst.bound


def test_another_order_of_a_sum_passes_and_low_precision_or_a_wrong_product_does_not() -> None:
    rows, weights = inputs()
    order = torch.randperm(COLUMNS)
    assert worst_share(results(rows[:, order], weights[order])) < 1
    assert worst_share(results(rows.half().float(), weights.half().float())) > 1
    assert worst_share(results(rows, weights) | {"products": 1.01 * (rows @ weights)}) > 1


def test_what_is_undefined_on_one_side_is_the_worst_and_on_both_equal() -> None:
    unset = {"partition": torch.tensor([torch.nan, torch.inf, 1.0])}
    assert compare(unset, unset, [unset], units=1)[0].distance == 0
    found = results(*inputs()) | {"loss": torch.tensor(torch.nan)}
    findings = Findings()
    findings.compare(found, results(*inputs()), [results(*inputs())])
    assert findings.above
