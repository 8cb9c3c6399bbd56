"""Bounds of comparisons: roundings keep them, mistakes do not."""

import torch
from torch import Tensor

from pretrain.checks.comparison import FLOAT32_UNITS, Difference, compare, perturb, summarize

ROWS, COLUMNS = 64, 4608


def results(rows: Tensor, weights: Tensor) -> dict[str, Tensor]:
    return {"loss": (rows @ weights).square().mean(), "products": rows @ weights}


def inputs(seed: int = 0) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(ROWS, COLUMNS, generator=generator), torch.randn(
        COLUMNS, generator=generator
    )


def moved() -> dict[str, Tensor]:
    rows, weights = inputs()
    perturb([rows, weights], torch.float32, torch.Generator().manual_seed(1))
    return results(rows, weights)


def check(found: dict[str, Tensor]) -> list[Difference]:
    return compare(found, results(*inputs()), [moved()], units=FLOAT32_UNITS)


def test_another_order_of_a_sum_keeps_the_bound() -> None:
    rows, weights = inputs()
    order = torch.randperm(COLUMNS)
    in_float64 = {
        name: value.float() for name, value in results(rows.double(), weights.double()).items()
    }
    assert all(each.within for each in check(results(rows[:, order], weights[order])))
    assert all(each.within for each in check(in_float64))


def test_a_wrong_result_is_outside_and_comes_first() -> None:
    found = results(*inputs())
    found["products"] = 1.01 * found["products"]
    worst, _ = check(found)
    assert worst.name == "products"
    assert not worst.within


def test_products_with_ten_bits_of_mantissa_are_outside() -> None:
    rows, weights = inputs()
    low = rows.half().float(), weights.half().float()
    assert not check(results(*low))[0].within


def test_an_undefined_result_is_outside() -> None:
    found = results(*inputs())
    found["loss"] = torch.tensor(torch.nan)
    worst = check(found)[0]
    assert worst.name == "loss"
    assert not worst.within


def test_entries_that_are_undefined_on_both_sides_are_equal() -> None:
    unset = {"partition": torch.tensor([torch.nan, torch.inf, 1.0])}
    (only,) = compare(unset, unset, [unset], units=1)
    assert only.within
    assert only.distance == 0


def test_integers_are_equal_or_outside() -> None:
    one, other = {"position": torch.tensor(3)}, {"position": torch.tensor(4)}
    assert compare(one, one, [], units=1)[0].within
    assert not compare(one, other, [], units=1)[0].within


def test_failures_name_three_results_and_count_the_others() -> None:
    expected = {str(place): torch.ones(3) for place in range(5)}
    found = {name: 2 * value for name, value in expected.items()}
    failures, facts = summarize(compare(found, expected, [], units=1))
    assert len(failures) == 4
    assert failures[-1] == "2 more of 5 results are too far apart"
    assert facts["results"] == 5
    assert facts["largest_difference"] == 1


def test_a_change_by_one_unit_changes_each_entry_by_one_unit() -> None:
    values = torch.rand(100) + 1
    changed = values.clone()
    perturb([changed], torch.float32, torch.Generator().manual_seed(0))
    relative = (changed.double() / values.double() - 1).abs() / torch.finfo(torch.float32).eps
    assert relative.min() > 0.4
    assert relative.max() < 1.6
