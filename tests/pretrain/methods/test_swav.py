"""SwAV against its equations, computed differently: Caron et al., arXiv:2006.09882."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from pretrain.methods.swav import SwAV, sinkhorn
from tests.rounding import SHORT_CHAIN, assert_equal_up_to_rounding, rounding_error
from tests.tiny_methods import tiny_batch, tiny_method

NUM_IMAGES = 8


def cosines(num_views: int = 4, num_images: int = 6, num_prototypes: int = 5) -> Tensor:
    """Scores (V, n, K) of random embeddings."""
    generator = torch.Generator().manual_seed(0)
    embeddings = torch.randn(num_views, num_images, 8, generator=generator)
    prototypes = torch.randn(num_prototypes, 8, generator=generator)
    return normalize(embeddings, dim=2) @ normalize(prototypes, dim=1).T


def slow_codes(scores: Tensor, epsilon: float, num_iterations: int) -> Tensor:
    """Codes (n, K) of one view in float64, entry by entry.

    Algorithm 1 of the appendix.
    """
    q = [[math.exp(score / epsilon) for score in row] for row in scores.tolist()]
    n, k = scores.shape
    for _ in range(num_iterations):
        for b in range(k):
            column = sum(q[a][b] for a in range(n))
            for a in range(n):
                q[a][b] /= k * column
        for a in range(n):
            row = sum(q[a])
            q[a] = [value / (n * row) for value in q[a]]
    return torch.tensor([[value * n for value in row] for row in q], dtype=torch.float64)


@pytest.mark.parametrize("num_iterations", [1, 3])
def test_codes_are_those_of_the_algorithm_entry_by_entry(num_iterations: int) -> None:
    scores = cosines()[:2]
    codes = sinkhorn(scores, epsilon=0.05, num_iterations=num_iterations)
    expected = torch.stack([slow_codes(view, 0.05, num_iterations) for view in scores])
    # the rounding of (score - 1) / epsilon becomes the relative error of its power
    error = rounding_error(torch.float32, magnitude=2 / 0.05, operations=SHORT_CHAIN)
    torch.testing.assert_close(codes.double(), expected, rtol=error, atol=0)


def log_codes(scores: Tensor, epsilon: float, num_iterations: int) -> Tensor:
    """Codes (..., n, K), computed in float64 with logarithms."""
    logs = scores.double() / epsilon
    for _ in range(num_iterations):
        logs = logs - logs.logsumexp(dim=-2, keepdim=True)
        logs = logs - logs.logsumexp(dim=-1, keepdim=True)
    return logs.exp()


@pytest.mark.parametrize("epsilon", [0.05, 0.03, 0.025, 0.0249, 0.015, 0.008, 0.005, 0.001, 1e-4])
@pytest.mark.parametrize("scale", [1.0, 3.0])
def test_codes_for_small_epsilon_are_those_of_float64(epsilon: float, scale: float) -> None:
    torch.manual_seed(0)
    images, prototypes = (normalize(torch.randn(n, 32), dim=1) for n in (64, 200))
    scores = (scale * images @ prototypes.T).clamp(-1, 1)  # up to the whole range of cosines
    codes = sinkhorn(scores, epsilon=epsilon, num_iterations=3)
    # each logarithm is off by the rounding of a score over epsilon, in three iterations of two sums
    error = rounding_error(torch.float32, magnitude=2 / epsilon, operations=SHORT_CHAIN)
    expected = log_codes(scores, epsilon, 3)
    torch.testing.assert_close(codes.double(), expected, rtol=error, atol=1e-30)
    torch.testing.assert_close(codes.sum(dim=1), torch.ones(64), rtol=1e-5, atol=0)


def test_rows_of_an_empty_queue_take_no_part_for_small_epsilon() -> None:
    scores = cosines()[0]
    empty = torch.full((3, scores.shape[1]), -math.inf)
    codes = sinkhorn(torch.cat([scores, empty]), epsilon=0.005, num_iterations=3)
    assert torch.equal(codes[:6], sinkhorn(scores, epsilon=0.005, num_iterations=3))
    assert not codes[6:].any()


def test_codes_are_float32_under_autocast() -> None:
    scores = torch.tensor([[1.0, 0.5], [0.5, 1.0]])  # exp(1 / 0.05) is far above 65504
    expected = sinkhorn(scores, epsilon=0.05, num_iterations=3)
    with torch.autocast("cpu", torch.bfloat16):
        codes = sinkhorn(scores.half(), epsilon=0.05, num_iterations=3)
    assert codes.dtype == torch.float32
    assert torch.equal(codes, expected)
    assert codes.isfinite().all()


def slow_loss(scores: Tensor, codes: Tensor, temperature: float) -> Tensor:
    """Eq. 6 in float64, mean over its terms and images."""
    terms = []
    for i, code in enumerate(codes.double()):
        for v, view in enumerate(scores.double()):
            if v != i:
                shares = (view / temperature).exp()
                shares = shares / shares.sum(dim=1, keepdim=True)
                terms += [-(q @ p.log()) for q, p in zip(code, shares, strict=True)]
    return torch.stack(terms).mean()


def tiny_swav(**changes: Any) -> Any:
    settings = {"queue_size": 0, "num_small_views": 2, "epsilon": 0.05, **changes}
    return tiny_method("swav", norm=nn.Identity, **settings)


def views_of(method: SwAV, seed: int = 0) -> list[Tensor]:
    torch.manual_seed(seed)
    return [view + torch.randn_like(view) for view in tiny_batch(method).views]


def slow_embeddings(method: SwAV, views: list[Tensor]) -> Tensor:
    """Projections (V, n, d), with one backbone pass per view."""
    backbone, projector = method.encoder
    embedded = projector(torch.cat([backbone(view) for view in views]))
    return normalize(embedded, dim=1).view(len(views), len(views[0]), -1)


@pytest.mark.parametrize(("num_large", "num_small"), [(2, 0), (2, 6), (3, 5)])
def test_every_view_predicts_the_codes_of_the_two_first_views_but_its_own(
    num_large: int, num_small: int
) -> None:
    method = tiny_swav(num_large_views=num_large, num_small_views=num_small)
    views = views_of(method)
    scores = slow_embeddings(method, views) @ normalize(method.prototypes, dim=1).T
    codes = torch.stack([slow_codes(view, 0.05, 3) for view in scores[:2].detach()])
    expected = slow_loss(scores, codes, 0.1)
    # cosines are rounded, over epsilon in the codes and over the temperature in the shares
    assert_equal_up_to_rounding(
        method(views, 1.0)["loss"], expected, magnitude=1 / 0.05, operations=SHORT_CHAIN
    )


def test_prototypes_that_a_step_has_moved_return_to_unit_length_before_the_next() -> None:
    method = tiny_swav()
    views = views_of(method)
    expected = method(views, 1.0)["loss"]
    unit = method.prototypes.detach().clone()
    with torch.no_grad():
        method.prototypes.mul_(torch.linspace(0.5, 3, 16)[:, None])
    assert_equal_up_to_rounding(
        method(views, 1.0)["loss"], expected, magnitude=1 / 0.05, operations=SHORT_CHAIN
    )
    torch.testing.assert_close(method.prototypes.detach(), unit)


def test_queue_serves_the_step_after_it_is_full() -> None:
    method = tiny_swav(queue_size=2 * NUM_IMAGES, queue_from=0.5)
    without = tiny_swav()
    used = []
    for step, progress in enumerate((0.4, 0.5, 0.6, 0.7, 0.8, 0.9)):
        views = views_of(method, seed=step)
        loss, plain = (item(views, progress)["loss"] for item in (method, without))
        # rows of minus infinity add nothing, but may change the order of the sums
        used.append(
            (loss - plain).abs().item()
            > rounding_error(loss.dtype, magnitude=1 / 0.05, operations=SHORT_CHAIN)
        )
    assert used == [False, False, False, False, True, True]


def test_codes_with_a_queue_use_past_embeddings() -> None:
    method = tiny_swav(queue_size=2 * NUM_IMAGES)
    past = [views_of(method, seed=step) for step in (1, 2)]
    for views in past:
        method(views, 1.0)
    embedded = [slow_embeddings(method, views).detach() for views in (*past, views_of(method))]
    for queue, first, second in zip(method.queues, *embedded[:2], strict=False):
        torch.testing.assert_close(queue.keys, torch.cat([first, second]))
    scores = embedded[2] @ method.prototypes.T
    codes = []
    for view in range(2):
        rows = torch.cat([embeddings[view] for embeddings in embedded])
        codes.append(slow_codes((rows @ method.prototypes.T).detach(), 0.05, 3)[-NUM_IMAGES:])
    expected = slow_loss(scores, torch.stack(codes), 0.1)
    assert_equal_up_to_rounding(method(views_of(method), 1.0)["loss"], expected, magnitude=1 / 0.05)
