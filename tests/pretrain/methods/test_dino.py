"""DINO against its equations, computed differently: Caron et al., arXiv:2104.14294."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import linear, normalize
from torch.nn.utils.parametrizations import weight_norm

from pretrain.methods.dino import Head
from pretrain.recipes.dino import DINOConfig
from tests.rounding import SHORT_CHAIN, assert_equal_up_to_rounding
from tests.tiny_methods import tiny_batch, tiny_method


def softmax(values: list[float], temperature: float) -> list[float]:
    shares = [math.exp(value / temperature) for value in values]
    return [share / sum(shares) for share in shares]


def slow_loss(logits: Tensor, target_logits: Tensor, center: Tensor) -> float:
    """Eq. 3, entry by entry, with temperatures 0.1 and 0.05."""
    terms = []
    for a, target_view in enumerate(target_logits.double()):
        for v, view in enumerate(logits.double()):
            if v == a:
                continue
            for target, row in zip(target_view, view, strict=True):
                message = softmax((target - center).tolist(), 0.05)
                predicted = softmax(row.tolist(), 0.1)
                terms.append(-sum(s * math.log(p) for s, p in zip(message, predicted, strict=True)))
    return sum(terms) / len(terms)


@pytest.mark.parametrize("head_norm", [True, False])
def test_head_ends_with_weight_norm_of_gain_one(head_norm: bool) -> None:
    torch.manual_seed(0)
    head = Head(12, DINOConfig(hidden_dim=16, embedding_dim=8, output_dim=7, head_norm=head_norm))
    last = weight_norm(nn.Linear(8, 7, bias=False))
    last.parametrizations.weight.original0.data.fill_(1)
    last.parametrizations.weight.original1.data.copy_(head.last_layer.weight)
    features = torch.randn(6, 12)
    result = head(features)
    expected = last(normalize(head.layers(features), dim=1))
    torch.testing.assert_close(result, expected)
    mark = torch.randn(6, 7)
    (result * mark).sum().backward()
    (expected * mark).sum().backward()
    direction = last.parametrizations.weight.original1
    torch.testing.assert_close(head.last_layer.weight.grad, direction.grad)
    hidden = [nn.Linear, *[nn.BatchNorm1d] * head_norm, nn.GELU]
    assert [type(layer) for layer in head.layers] == [*hidden, *hidden, nn.Linear]


def tiny_dino(**changes: Any) -> Any:
    """DINO with different encoder and target encoder."""
    settings = {"target_temperature": 0.07, "temperature_warmup": 0.5, **changes}
    method = tiny_method("dino", norm=nn.Identity, **settings)
    with torch.no_grad():
        for parameter in method.target_encoder.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
        method.center.copy_(0.1 * torch.randn_like(method.center))
    return method


def slow_logits(encoder: nn.Module, views: list[Tensor]) -> Tensor:
    """Head outputs (V, n, K), with one backbone pass per view."""
    backbone, head = encoder.children()
    features = torch.cat([backbone(view) for view in views])
    embeddings = normalize(head.get_submodule("layers")(features), dim=1)
    directions = normalize(head.get_parameter("last_layer.weight"), dim=1)
    return linear(embeddings, directions).view(len(views), len(views[0]), -1)


@pytest.mark.parametrize("num_small", [0, 6])
def test_step_uses_the_center_before_updating_it(
    num_small: int,
) -> None:
    method = tiny_dino(num_small_views=num_small, target_temperature=0.05, temperature=0.1)
    assert [view.small for view in method.views] == [False] * 2 + [True] * num_small
    views, center = tiny_batch(method).views, method.center.clone()
    with torch.no_grad():
        logits = slow_logits(method.encoder, views)
        target_logits = slow_logits(method.target_encoder.network, views[:2])
    expected = slow_loss(logits, target_logits, center)
    result = method(views, 1.0)
    # cosines are rounded, over a temperature of 0.05
    assert_equal_up_to_rounding(
        result["loss"], expected, magnitude=1 / 0.05, operations=SHORT_CHAIN
    )
    mean = target_logits.mean(dim=(0, 1))
    torch.testing.assert_close(method.center, 0.9 * center + 0.1 * mean)


def test_target_temperature_warms_up() -> None:
    method = tiny_dino()
    result = [method.target_temperature(progress) for progress in (0.0, 0.25, 0.5, 0.75, 1.0)]
    assert result == pytest.approx([0.04, 0.055, 0.07, 0.07, 0.07])
    assert tiny_dino(temperature_warmup=0.0).target_temperature(0.0) == 0.07
