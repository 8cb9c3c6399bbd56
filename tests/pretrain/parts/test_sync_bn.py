"""Synchronous batch norm of two processes against plain batch norm of one with all images."""

from typing import Any

import pytest
import torch
from torch import nn

from pretrain.parts.sync_bn import GlobalBatchNorm, synchronize_batch_norms
from tests.two_processes import two_processes

NUM_IMAGES = 6


def network() -> nn.Sequential:
    """Every kind of batch norm, on (n, 3, 4, 4)."""
    torch.manual_seed(0)
    made = nn.Sequential(
        nn.Conv2d(3, 4, 3, bias=False),
        nn.Sequential(nn.BatchNorm2d(4, momentum=0.3, eps=1e-3), nn.ReLU()),
        nn.Flatten(),
        nn.BatchNorm1d(16, momentum=None),
        nn.Linear(16, 5),
        nn.BatchNorm1d(5, affine=False),
        nn.BatchNorm1d(5, track_running_stats=False),
    )
    for parameter in made.parameters():
        nn.init.normal_(parameter)
    return made


def measure_losses(rank: int, num_processes: int) -> dict[str, Any]:
    """Outputs, gradients and statistics of two steps on the images of one process."""
    norms = synchronize_batch_norms(network().double())
    torch.manual_seed(1)
    size = NUM_IMAGES // num_processes
    images = torch.randn(2, NUM_IMAGES, 3, 4, 4).double()[:, rank * size : (rank + 1) * size]
    weights = torch.randn(NUM_IMAGES, 5).double()[rank * size : (rank + 1) * size]
    leaves = images.clone().requires_grad_()
    outputs = [norms(leaves[step]) for step in range(2)]
    (torch.stack(outputs) * weights).sum().backward()
    norms.eval()
    return {
        "outputs": torch.stack(outputs, dim=1).detach(),
        "image gradients": leaves.grad.transpose(0, 1),  # type: ignore[union-attr]
        "parameter gradients": {name: p.grad for name, p in norms.named_parameters()},
        "state": norms.state_dict(),
        "eval": norms[:-1](images[0]).detach(),  # type: ignore[index]
    }


@pytest.fixture(scope="module")
def halves(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return two_processes("tests.pretrain.parts.test_sync_bn", tmp_path_factory.mktemp("two"))


@pytest.fixture(scope="module")
def whole() -> dict[str, Any]:
    return measure_losses(0, 1)


@pytest.mark.slow
@pytest.mark.parametrize("rows", ["outputs", "image gradients", "eval"])
def test_outputs_and_gradients_of_images_are_those_of_the_whole_batch(
    rows: str, halves: list[dict[str, Any]], whole: dict[str, Any]
) -> None:
    joined = torch.cat([half[rows] for half in halves])
    torch.testing.assert_close(joined, whole[rows])


@pytest.mark.slow
def test_gradients_of_parameters_add_up_to_those_of_the_whole_batch(
    halves: list[dict[str, Any]], whole: dict[str, Any]
) -> None:
    for name, expected in whole["parameter gradients"].items():
        total = halves[0]["parameter gradients"][name] + halves[1]["parameter gradients"][name]
        torch.testing.assert_close(total, expected)


@pytest.mark.slow
def test_statistics_have_the_names_and_values_of_the_whole_batch(
    halves: list[dict[str, Any]], whole: dict[str, Any]
) -> None:
    for half in halves:
        torch.testing.assert_close(half["state"], whole["state"])


def test_one_process_keeps_its_network() -> None:
    plain = network()
    kinds = [type(module) for module in plain.modules()]
    assert synchronize_batch_norms(plain) is plain
    assert [type(module) for module in plain.modules()] == kinds


def test_conversion_keeps_the_tensors_themselves(monkeypatch: pytest.MonkeyPatch) -> None:
    plain = network().double().requires_grad_(False)
    before = plain.state_dict(keep_vars=True)
    monkeypatch.setattr("pretrain.parts.sync_bn.num_processes", lambda: 2)
    monkeypatch.setattr("torch.distributed.get_backend", lambda: "gloo")
    after = synchronize_batch_norms(plain).state_dict(keep_vars=True)
    assert list(after) == list(before)
    assert all(after[name] is tensor for name, tensor in before.items())
    assert isinstance(plain[3], GlobalBatchNorm)


@pytest.mark.parametrize("momentum", [0.1, None])
def test_no_number_is_read_from_the_device(
    momentum: float | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pretrain.parts.sync_bn.num_processes", lambda: 2)
    norm = GlobalBatchNorm(3, momentum=momentum, device="meta")
    # a tensor without values raises where one is read
    assert norm._normalize(torch.empty(4, 3, device="meta")).shape == (4, 3)


def test_mean_over_all_batches_is_that_of_plain_batch_norm(monkeypatch: pytest.MonkeyPatch) -> None:
    own, plain = GlobalBatchNorm(3, momentum=None), nn.BatchNorm1d(3, momentum=None)
    for rows in torch.randn(7, 8, 3):
        plain(rows)
        own._update_running_statistics(rows.mean(dim=0), rows.var(dim=0))
    torch.testing.assert_close(own.state_dict(), plain.state_dict())
