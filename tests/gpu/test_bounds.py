"""What the comparisons of this room let pass: roundings; and what they do not: mistakes, TF32."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.gpu import test_frozen, test_methods
from tests.gpu.findings import Findings
from tests.gpu.rounding import FLOAT32_UNITS, compare, perturb
from tests.gpu.started import Place, smooth
from tests.tiny_methods import tiny_batch, tiny_method
from transfer.frozen.network import frozen_network

ON_CPU = Place(device=torch.device("cpu"), folder=Path())
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


def test_a_gradient_that_is_a_hundredth_too_long_on_the_device_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def start(place: Place, name: str) -> object:
        method = tiny_method(name)
        return smooth(method).train(), tiny_batch(method)

    def with_mistake(*things: object) -> object:
        method, batch = move(*things)  # type: ignore[arg-type]
        last = list(method.parameters())[-1]
        last.register_hook(lambda gradient: 1.01 * gradient)
        return method, batch

    move = test_methods.moved_to
    monkeypatch.setattr(test_methods, "smooth_start", start)
    right, wrong = Findings(), Findings()
    test_methods.test_a_step_in_float32("simclr", ON_CPU, right)
    monkeypatch.setattr(test_methods, "moved_to", with_mistake)
    test_methods.test_a_step_in_float32("simclr", ON_CPU, wrong)
    assert not right.above
    assert "gradient of" in wrong.above[0]


def test_features_in_tf32_or_of_another_weight_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    def in_tf32(network: nn.Module) -> None:
        for module in network.modules():
            if isinstance(module, nn.Conv2d):
                module.weight.data = rounded(module.weight.data)
                module.register_forward_pre_hook(lambda _, inputs: (rounded(inputs[0]),))

    def rounded(values: Tensor) -> Tensor:
        mantissa, exponent = torch.frexp(values)
        return torch.ldexp((mantissa * 2**11).round() / 2**11, exponent)

    def spoil_a_shift(network: nn.Module) -> None:
        network.get_parameter("layer1.0.bn1.bias").data[0] += 0.1

    for change in (in_tf32, spoil_a_shift):

        def changed(backbone: object, change: object = change) -> nn.Module:
            network = frozen_network(backbone)  # type: ignore[arg-type]
            change(network)  # type: ignore[operator]
            return network

        monkeypatch.setattr(test_frozen, "frozen_network", changed)
        findings = Findings()
        test_frozen.test_features_in_float32("resnet18", ON_CPU, findings)
        assert findings.above
