"""LORAC against its equations, computed differently: Wang et al., arXiv:2108.02696."""

import math
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize
from torch.nn.parallel import DistributedDataParallel

from pretrain.methods.lorac import LORAC, nuclear_norm
from pretrain.recipes.lorac import LORACConfig
from tests.rounding import assert_equal_up_to_rounding
from tests.tiny_methods import tiny_batch, tiny_method
from tests.two_processes import two_processes


def tiny_lorac(**changes: Any) -> Any:
    """LORAC with a constant key encoder that differs from its query encoder."""
    paper = {**vars(LORACConfig()), "queue_size": 16, "embedding_dim": 8, "momentum": 1.0}
    method = tiny_method("lorac", norm=nn.Identity, **{**paper, **changes})
    with torch.no_grad():
        for parameter in method.key_encoder.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return method


def slow_log_prior(prior: str, matrices: Tensor, large: Tensor) -> Tensor:
    """Log prior (n,) with beta 4 and temperature 0.2.

    matrices: Q (n, M_Q, d); large: the large queries (V, n, d).
    """
    norm = torch.linalg.svdvals(matrices).sum(dim=1)
    num_rows = matrices.shape[1]
    centered = (large - large.mean(dim=0)).flatten(0, 1)
    batch_norm = torch.linalg.svdvals(centered).sum()
    priors = {
        "laplace": -norm / (num_rows * 4 * 0.2),
        "gaussian": -((norm - math.sqrt(5)) ** 2) / (2 * num_rows * 0.2),
        "margin": torch.full_like(norm, -3 / (num_rows * 4 * 0.2)),
        "batch": (-batch_norm / (len(centered) * 4 * 0.2)).expand(len(norm)),
        "none": torch.zeros(len(norm)),
    }
    log_prior: Tensor = priors[prior]
    return log_prior


def slow_step(method: LORAC, views: list[Tensor], prior: str, q_rows: str) -> tuple[Tensor, Tensor]:
    """Loss and mean nuclear norm of three large and five small views.

    Keys are from the first two views, and all logits are in memory.
    """
    q = torch.stack([normalize(method.encoder(view), dim=1) for view in views])
    k = torch.stack([normalize(method.key_encoder(view), dim=1) for view in views[:2]])
    losses, norms = [], []
    for a, b in ((0, 1), (1, 0)):
        rows = {
            "large_and_keys": torch.cat([q[:3], k]),
            "per_key": torch.stack([q[b], q[2], k[a]]),
            "all_views": torch.cat([q, k]),
        }[q_rows].transpose(0, 1)
        queries = torch.cat([q[:a], q[a + 1 :]])
        positive = (queries * k[a]).sum(dim=2) / 0.2 + slow_log_prior(prior, rows, q[:3])
        negative = queries @ method.queues[b].keys.T / 0.2
        logits = torch.cat([positive[:, :, None], negative], dim=2).flatten(0, 1)
        losses.append(cross_entropy(logits, torch.zeros(len(logits), dtype=torch.long)))
        norms.append(torch.linalg.svdvals(rows).sum(dim=1).mean())
    return torch.stack(losses).mean(), torch.stack(norms).mean()


@pytest.mark.parametrize(
    ("prior", "q_rows"),
    [(prior, "large_and_keys") for prior in ("laplace", "gaussian", "margin", "batch", "none")]
    + [("laplace", "per_key"), ("laplace", "all_views")],
)
def test_each_key_is_sought_by_all_other_views_in_the_queue_of_the_other_key(
    prior: str, q_rows: str
) -> None:
    method = tiny_lorac(prior=prior, q_rows=q_rows)
    views = tiny_batch(method).views
    expected, norm = slow_step(method, views, prior, q_rows)
    gradients = torch.autograd.grad(expected, list(method.encoder.parameters()))
    result = method(views, 1.0)
    result["loss"].backward()
    torch.testing.assert_close(result["loss"], expected)
    torch.testing.assert_close(result["nuclear_norm"], norm.detach())
    for parameter, gradient in zip(method.encoder.parameters(), gradients, strict=True):
        assert_equal_up_to_rounding(parameter.grad, gradient)


def test_the_prior_acts_in_the_second_half_of_the_run() -> None:
    method = tiny_lorac()
    views = tiny_batch(method).views
    without = tiny_lorac(prior="none")(views, 1.0)
    first_half, second_half = tiny_lorac()(views, 100 / 200), tiny_lorac()(views, 101 / 200)
    assert torch.equal(first_half["loss"], without["loss"])
    assert torch.equal(second_half["loss"], tiny_lorac(prior_from=0.0)(views, 0.1)["loss"])
    assert second_half["loss"] > first_half["loss"]
    assert torch.equal(first_half["nuclear_norm"], second_half["nuclear_norm"])


def test_the_legacy_loss_has_temperature_one_once_the_prior_acts() -> None:
    views = tiny_batch(tiny_lorac()).views
    legacy = tiny_lorac(legacy_untempered=True)
    without_prior, with_prior = (
        legacy(views, 0.5)["loss"],
        tiny_lorac(legacy_untempered=True)(views, 1.0),
    )
    assert torch.equal(without_prior, tiny_lorac()(views, 0.5)["loss"])
    assert torch.equal(with_prior["loss"], tiny_lorac(temperature=1.0)(views, 1.0)["loss"])


@pytest.mark.parametrize("prior", ["none", "laplace", "gaussian", "margin", "batch"])
@pytest.mark.parametrize("progress", [0.0, 0.9])
def test_a_norm_that_nobody_reads_changes_nothing(prior: str, progress: float) -> None:
    results = []
    for read in (True, False):
        method = tiny_lorac(prior=prior, prior_from=0.5)
        method.metrics_read = read
        torch.manual_seed(3)
        metrics = method(tiny_batch(method).views, progress)
        metrics["loss"].backward()
        assert ("nuclear_norm" in metrics) == read
        results.append([metrics["loss"].detach(), *(p.grad for p in method.encoder.parameters())])
    assert all(map(torch.equal, *results))


def measure_losses(rank: int, num_processes: int) -> dict[str, Any]:
    """One process's results of a step with the global batch's prior."""
    size = 8 // num_processes
    mine = slice(rank * size, (rank + 1) * size)
    method = tiny_lorac(prior="batch", batch_scope="global", beta=1.0)
    network = method if num_processes == 1 else DistributedDataParallel(method)
    loss = network([view[mine] for view in tiny_batch(method).views], 1.0)["loss"]
    loss.backward()
    gradients = [parameter.grad for parameter in method.encoder.parameters()]
    return {"loss": loss.detach(), "gradients": gradients}


@pytest.mark.slow
def test_a_prior_of_two_processes_is_that_of_one_with_the_whole_batch(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    halves = two_processes("tests.pretrain.methods.test_lorac", tmp_path_factory.mktemp("two"))
    whole = measure_losses(0, 1)
    torch.testing.assert_close((halves[0]["loss"] + halves[1]["loss"]) / 2, whole["loss"])
    for half in halves:
        assert_equal_up_to_rounding(half["gradients"], whole["gradients"])


SHAPES = [(4, 5, 128), (3, 9, 4), (2, 6, 6), (2, 1, 7)]


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(0))


def norm_and_gradient(matrices: Tensor) -> tuple[Tensor, Tensor]:
    leaf = matrices.clone().requires_grad_()
    norm = nuclear_norm(leaf)
    norm.sum().backward()
    assert leaf.grad is not None
    return norm.detach(), leaf.grad


def polar_factor(matrices: Tensor, rank: int) -> Tensor:
    """U V' of the largest `rank` singular values, in float64."""
    u, _, vh = torch.linalg.svd(matrices.double(), full_matrices=False)
    factor: Tensor = u[..., :rank] @ vh[..., :rank, :]
    return factor


def test_gradient_of_the_nuclear_norm_is_the_polar_factor(
    subtests: pytest.Subtests,
) -> None:
    for shape in SHAPES:
        with subtests.test(shape=shape):
            matrices = random(*shape)
            norm, gradient = norm_and_gradient(matrices)
            assert_equal_up_to_rounding(norm, torch.linalg.svdvals(matrices).sum(dim=1))
            # the polar factor feels a rounding of the rows over the least singular value
            smallest = torch.linalg.svdvals(matrices).amin(dim=1).min().item()
            assert_equal_up_to_rounding(
                gradient,
                polar_factor(matrices, 9),
                magnitude=max(1, matrices.norm(dim=(1, 2)).max().item() / smallest),
            )


@pytest.mark.parametrize("dim", [8, 128])
def test_rows_that_differ_by_rounding_count_as_equal(dim: int) -> None:
    row = normalize(random(3, 1, dim), dim=2)
    last_digit = torch.tensor([0.0, 1.0, -1.0, 0.0, 1.0])[:, None] * 2.0**-23
    _, gradient = norm_and_gradient(row * (1 + last_digit * random(3, 5, dim)))
    torch.testing.assert_close(gradient, row.expand(-1, 5, -1) / math.sqrt(5))


def test_infinite_matrix_has_norm_nan() -> None:
    matrices = random(3, 5, 8)
    expected = nuclear_norm(matrices)
    matrices[0, 2, 3], matrices[1, 0, 0] = torch.nan, torch.inf
    norms = nuclear_norm(matrices)
    assert norms.isnan().tolist() == [True, True, False]
    assert torch.equal(norms[2], expected[2])


@pytest.mark.parametrize("num_rows", [3, 20])
def test_the_joint_norm_of_one_process_is_the_norm_of_its_rows(num_rows: int) -> None:
    rows = random(num_rows, 8)
    leaf = rows.clone().requires_grad_()
    (norm,) = nuclear_norm(leaf[None], joint=True)
    norm.backward()
    expected, gradient = norm_and_gradient(rows[None])
    torch.testing.assert_close(norm.detach(), expected[0])
    assert_equal_up_to_rounding(leaf.grad, gradient[0], magnitude=1.0)
