"""UniCLR losses against their equations, computed differently: Li et al., arXiv:2211.14516."""

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from pretrain.methods.uniclr import ONE_PAIR, UniCLR, uniclr_loss
from pretrain.recipes.uniclr import UniCLRConfig
from tests.tiny_methods import forward, tiny_batch, tiny_method


def loss_of(z1: Tensor, z2: Tensor, **settings: Any) -> Tensor:
    """Return the training loss of two views (N, D) with these settings."""
    config = UniCLRConfig(embedding_dim=z1.shape[1], **settings)
    return uniclr_loss(torch.stack([z1, z2]), ONE_PAIR, config)["loss"]


sim_affinity_loss = partial(loss_of, variant="affinity")
sim_whitening_loss = partial(loss_of, variant="whitening")
sim_trace_loss = partial(loss_of, variant="trace")
Loss = Callable[[Tensor, Tensor], Tensor]
LOSSES: dict[str, Loss] = {
    "affinity": lambda z1, z2: sim_affinity_loss(z1, z2, temperature=0.5, symmetry_weight=0.01),
    "whitening": lambda z1, z2: sim_whitening_loss(
        z1, z2, temperature=1.0, symmetry_weight=0.01, ridge=0.1
    ),
    "trace": lambda z1, z2: sim_trace_loss(z1, z2, ridge=0.1),
}


def embeddings(num_images: int = 8, dim: int = 5) -> tuple[Tensor, Tensor]:
    """Z1, Z2 (N, D), correlated, of any length, float64."""
    generator = torch.Generator().manual_seed(0)
    draw = torch.randn(3, num_images, dim, generator=generator, dtype=torch.float64)
    return 2 * draw[0] + draw[1] + 1, 2 * draw[0] + draw[2] + 1


def equation_10(z1: Tensor, z2: Tensor, temperature: float) -> float:
    """Return SimAffinity without symmetry as in the appendix, term by term."""
    total = 0.0
    for i in range(len(z1)):
        similarity = [
            float(z1[i] @ z2[j] / (z1[i].norm() * z2[j].norm())) / temperature
            for j in range(len(z2))
        ]
        total -= math.log(math.exp(similarity[i]) / sum(map(math.exp, similarity)))
    return total / len(z1)


def covariance_of(z1: Tensor, z2: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Centered Z1, Z2, and the paper's sum of outer products of rows."""
    rows = torch.cat([z1, z2])
    centered = rows - rows.mean(dim=0)
    return centered[: len(z1)], centered[len(z1) :], centered.T @ centered


def test_affinity_loss_is_equation_10_or_its_mean_over_the_order_of_views() -> None:
    views = embeddings()
    settings: dict[str, Any] = {"temperature": 0.5, "symmetry_weight": 0.0}
    expected = equation_10(*views, 0.5)
    assert sim_affinity_loss(*views, **settings).item() == pytest.approx(expected)
    symmetric_loss = sim_affinity_loss(*views, **settings, ce_both_directions=True)
    back = equation_10(*views[::-1], 0.5)
    assert symmetric_loss.item() == pytest.approx((expected + back) / 2)


def test_whitening_loss_is_equation_10_of_rows_whitened_by_the_root_of_the_covariance() -> None:
    z1, z2 = embeddings()
    first, second, scatter = covariance_of(z1, z2)
    variances, axes = torch.linalg.eigh(scatter)
    root = axes @ torch.diag(variances.rsqrt()) @ axes.T
    loss = sim_whitening_loss(z1, z2, temperature=0.5, symmetry_weight=0.0, ridge=0.0)
    assert loss.item() == pytest.approx(equation_10(first @ root, second @ root, 0.5))


def test_symmetric_loss_is_the_frobenius_norm_of_what_differs_from_the_transpose() -> None:
    z1, z2 = embeddings()
    logits = normalize(z1, dim=1) @ normalize(z2, dim=1).T / 0.5
    squares = sum(float(logits[i, j] - logits[j, i]) ** 2 for i in range(8) for j in range(8))
    whole, without = (
        sim_affinity_loss(z1, z2, temperature=0.5, symmetry_weight=weight) for weight in (1.0, 0.0)
    )
    assert (whole - without).item() == pytest.approx(math.sqrt(squares))


def test_trace_loss_is_equation_3_over_half_the_features() -> None:
    z1, z2 = embeddings()
    first, second, scatter = covariance_of(z1, z2)
    paper = -torch.trace(first @ torch.linalg.inv(scatter) @ second.T)
    torch.testing.assert_close(sim_trace_loss(z1, z2, ridge=0.0), paper / (5 / 2))


def test_trace_loss_of_groups_is_the_mean_of_their_losses() -> None:
    z1, z2 = embeddings(dim=6)
    blocks = zip(z1.chunk(3, dim=1), z2.chunk(3, dim=1), strict=True)
    losses = torch.stack([sim_trace_loss(a, b, ridge=0.1) for a, b in blocks])
    torch.testing.assert_close(sim_trace_loss(z1, z2, ridge=0.1, groups=3), losses.mean())


@pytest.mark.parametrize("loss", [sim_trace_loss, sim_whitening_loss])
def test_detached_covariance_changes_only_the_gradient(
    loss: Callable[..., Tensor],
) -> None:
    z1, z2 = (z.requires_grad_() for z in embeddings())
    live, detached = (loss(z1, z2, detach_covariance=d, ridge=0.1) for d in (False, True))
    torch.testing.assert_close(live, detached)
    of_live, of_detached = (torch.autograd.grad(x, z1)[0] for x in (live, detached))
    assert torch.cosine_similarity(of_live.flatten(), of_detached.flatten(), dim=0) < 0.99


def test_prenorm_makes_lengths_irrelevant_before_whitening() -> None:
    z1, z2 = embeddings()
    lengths = torch.linspace(0.5, 2, 8)[:, None]
    expected = sim_trace_loss(normalize(z1, dim=1), normalize(z2, dim=1), ridge=0.1)
    loss = sim_trace_loss(lengths * z1, z2, ridge=0.1, prenorm=True)
    torch.testing.assert_close(loss, expected)


def tiny_uniclr(variant: str, **changes: Any) -> Any:
    plain = {"momentum_encoder": False, "predictor": False, "num_small_views": 0, "ridge": 0.1}
    return tiny_method(f"sim{variant}", norm=nn.Identity, **{**plain, **changes})


def step(method: UniCLR) -> Tensor:
    return forward(method, tiny_batch(method))["loss"]


@pytest.mark.parametrize("name", ["affinity", "whitening", "trace"])
def test_plain_method_is_the_loss_of_the_projected_views(name: str) -> None:
    method = tiny_uniclr(name)
    first, second = map(method.encoder, tiny_batch(method).views)
    torch.testing.assert_close(step(method), LOSSES[name](first, second))


@pytest.mark.parametrize("name", ["affinity", "whitening", "trace"])
def test_all_tricks_together_are_the_mean_over_ordered_pairs(name: str) -> None:
    method = tiny_uniclr(name, momentum_encoder=True, predictor=True, num_small_views=2)
    views = tiny_batch(method).views
    small = method.predictor(method.encoder(torch.cat(views[2:]))).chunk(2)
    sources = [*(method.predictor(method.encoder(view)) for view in views[:2]), *small]
    targets = [method.encoder(view) for view in views[:2]]  # still equal to its momentum copy
    pairs = [(s, t) for t in range(2) for s in range(4) if s != t]
    expected = torch.stack([LOSSES[name](sources[s], targets[t]) for s, t in pairs]).mean()
    torch.testing.assert_close(step(method), expected)


@pytest.mark.parametrize("name", ["whitening", "trace"])
def test_pooled_statistics_of_two_views_are_those_of_the_pair(name: str) -> None:
    pair, pooled = (step(tiny_uniclr(name, pooled_stats=choice)) for choice in (False, True))
    torch.testing.assert_close(pair, pooled)
    pairs, of_all = (
        step(tiny_uniclr(name, num_small_views=3, pooled_stats=choice)) for choice in (False, True)
    )
    assert of_all.item() != pytest.approx(pairs.item(), rel=1e-3)


def test_predictor_without_momentum_stops_the_gradient_of_the_other_branch() -> None:
    method = tiny_uniclr("affinity", predictor=True)
    views = tiny_batch(method).views
    step(method).backward()
    gradients = [parameter.grad for parameter in method.parameters()]
    method.zero_grad()
    targets = [method.encoder(view).detach() for view in views]
    sources = [method.predictor(method.encoder(view)) for view in views]
    losses = [LOSSES["affinity"](a, b) for a, b in zip(sources, targets[::-1], strict=True)]
    torch.stack(losses).mean().backward()
    torch.testing.assert_close(gradients, [parameter.grad for parameter in method.parameters()])


@pytest.mark.parametrize("wrong", [{"temperature": 0.5}, {"symmetry_weight": 0.01}])
def test_trace_refuses_settings_of_the_affinity_matrix(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="temperature 1 and symmetry_weight 0"):
        UniCLRConfig(variant="trace", **wrong)


def test_a_sensible_ridge_silences_the_caution_about_whitening(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    method = tiny_method("simtrace")
    features = method.config.embedding_dim
    method.config = replace(method.config, ridge=1e-3)
    (caution,) = method.cautions(batch_size=features // 2)
    assert f"{features} features with only {features} embeddings (ridge 0.001)" in caution
    assert method.cautions(batch_size=features) == []
    monkeypatch.setattr("pretrain.methods.uniclr.num_processes", lambda: 4)
    assert method.cautions(batch_size=features) == []
    method.config = replace(method.config, affinity_scope="local")
    assert method.batch_needs(method.config).local_prior
    assert f"{features // 2} embeddings" in method.cautions(batch_size=features)[0]
    method.config = replace(method.config, ridge=1.0)
    assert method.cautions(batch_size=features // 2) == []


def test_logged_metrics_are_mean_cosines() -> None:
    z1, z2 = embeddings()
    config = UniCLRConfig(embedding_dim=z1.shape[1], variant="affinity")
    metrics = uniclr_loss(torch.stack([z1, z2]), ONE_PAIR, config)
    cosines = [[float(a @ b / a.norm() / b.norm()) for b in z2] for a in z1]
    ours = [cosines[i][i] for i in range(len(z1))]
    remaining = [c for i, row in enumerate(cosines) for j, c in enumerate(row) if i != j]
    assert metrics["positive_similarity"].item() == pytest.approx(sum(ours) / len(ours))
    assert metrics["negative_similarity"].item() == pytest.approx(sum(remaining) / len(remaining))
