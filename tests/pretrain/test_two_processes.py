"""Two processes with half a batch each equal one with the batch."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pretrain.data.feed import Batch
from pretrain.methods import METHODS
from pretrain.methods.swav import sinkhorn
from pretrain.parts.gather import gather, gather_with_gradient
from pretrain.parts.sync_bn import shuffled_forward, synchronize_batch_norms
from pretrain.running.torch_versions import data_parallel
from tests.rounding import assert_equal_up_to_rounding
from tests.tiny_methods import IDLE, LEARNING, forward, tiny_batch, tiny_config, tiny_method
from tests.two_processes import two_processes

pytestmark = pytest.mark.slow
NUM_IMAGES = 8
RATE = 0.01
"""Learning rate of SGD, small enough for a nearly linear step.

Errors of the gradient then do not grow.
"""
FLOAT32 = {
    "instdisc": ("bank",),
    "swav": ("prototypes", "queues.0.keys", "queues.1.keys"),
    "dino": (
        "center",
        "encoder.1.last_layer.weight",
        "target_encoder.network.1.last_layer.weight",
    ),
}
"""Tensors that are combined with embeddings after their cast to float32.

All others are float64 here.
"""


def rows() -> Tensor:
    """Random rows (N, 3), equal in every process."""
    return torch.arange(3.0 * NUM_IMAGES).view(NUM_IMAGES, 3).sin()


def cosines() -> Tensor:
    """Scores (N, K) with largest values that differ between processes."""
    return torch.linspace(-1, 1, 4 * NUM_IMAGES).view(NUM_IMAGES, 4) * torch.tensor([1, -1, 0.5, 1])


def gathered_loss(mine: Tensor) -> Tensor:
    """A loss that couples all rows."""
    everything = gather_with_gradient(mine)
    return (everything @ everything.T).exp().mean()


def in_double(method: nn.Module, float32: tuple[str, ...]) -> nn.Module:
    """Return the method in float64, so that no layer amplifies roundings."""
    method.double()
    for path in float32:
        owner, _, name = path.rpartition(".")
        tensor = getattr(method.get_submodule(owner), name)
        tensor.data = tensor.data.float()
    return method


def measure_losses(rank: int, num_processes: int) -> dict[str, Any]:
    """Return one process's results of each part and of training steps."""
    size = NUM_IMAGES // num_processes
    mine = slice(rank * size, (rank + 1) * size)
    leaf = rows()[mine].clone().requires_grad_()
    gathered_loss(leaf).backward()
    torch.manual_seed(0)
    return {
        "gathered": gather(rows()[mine]),
        "gathered_gradient": leaf.grad,
        "shuffled": shuffled_forward(nn.Identity(), rows()[mine], 1),
        "codes": torch.stack(
            [sinkhorn(cosines()[mine], epsilon=e, num_iterations=3) for e in (0.05, 0.005)]
        ),
        "norm": norm_statistics(rows()[mine]),
        **{name: train_share(name, mine, num_processes) for name in LEARNING},
    }


def norm_statistics(rows: Tensor) -> Tensor:
    """Running mean and variance (2, 3) after two steps.

    rows: the rows of one process (n, 3).
    """
    norm = synchronize_batch_norms(nn.BatchNorm1d(3)).train()
    for _ in range(2):
        norm(rows)
    return torch.stack([norm.get_buffer("running_mean"), norm.get_buffer("running_var")])


def train_share(name: str, mine: slice, num_processes: int) -> dict[str, Any]:
    """Losses of two training steps, gradients of the first, final state."""
    # the others have statistics per process, at least of the keys: they are tested without norms
    needs = METHODS[name].batch_needs(tiny_config(name))
    synchronized = needs.norm_groups(2) == 1
    method = tiny_method(name, norm=nn.BatchNorm2d if synchronized else nn.Identity)
    in_double(method, FLOAT32.get(name, ()))
    whole = tiny_batch(method, num_images=NUM_IMAGES)
    extras = [rows[mine] for rows in whole.extras]
    batch = Batch([view[mine].double() for view in whole.views], extras)
    network = method
    if num_processes > 1:  # as the loop has it
        network = data_parallel(method, torch.device("cpu"))
    idle = IDLE.get(name, [])  # their gradients are only roundings
    learning = {n: p for n, p in method.named_parameters() if p.requires_grad and n not in idle}
    optimizer = torch.optim.SGD(learning.values(), lr=RATE)
    losses, gradients = [], {}
    for step in range(2):
        loss = forward(network, batch)["loss"]
        method.zero_grad()
        loss.backward()
        losses.append(loss.detach())
        if step == 0:
            gradients = {name: parameter.grad.clone() for name, parameter in learning.items()}
        optimizer.step()
        method.after_step(step / 2)
    return {"losses": torch.stack(losses), "gradients": gradients, "state": method.state_dict()}


@pytest.fixture(scope="module")
def halves(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    return two_processes("tests.pretrain.test_two_processes", tmp_path_factory.mktemp("two"))


@pytest.fixture(scope="module")
def whole() -> dict[str, Any]:
    return measure_losses(0, 1)


def test_processes_compute_the_loss_of_the_whole_batch(
    halves: list[dict[str, Any]], whole: dict[str, Any], subtests: pytest.Subtests
) -> None:
    """States are weights, statistics and queues after two steps."""
    for name in LEARNING:
        with subtests.test(name=name):
            mean = (halves[0][name]["losses"] + halves[1][name]["losses"]) / 2
            assert_equal_up_to_rounding(mean, whole[name]["losses"], dtype=torch.float32)
            for half in halves:
                # means of normed values are zeros that come from values of about one
                for key, magnitude in (("gradients", None), ("state", 1.0)):
                    assert_equal_up_to_rounding(
                        *(half[name][key], whole[name][key]),
                        magnitude=magnitude,
                        dtype=torch.float32,
                    )


def test_running_statistics_are_those_of_batch_norm_over_the_joined_batch(
    halves: list[dict[str, Any]],
) -> None:
    expected = norm_statistics(rows())  # torch's layer, with Bessel's correction for N rows
    for half in halves:
        assert_equal_up_to_rounding(half["norm"], expected, magnitude=1.0)


def test_codes_share_prototypes_over_processes(
    halves: list[dict[str, Any]], whole: dict[str, Any]
) -> None:
    joined = torch.cat([half["codes"] for half in halves], dim=1)
    torch.testing.assert_close(joined, whole["codes"], rtol=1e-4, atol=1e-30)


def test_gather_returns_all_rows_in_order(halves: list[dict[str, Any]]) -> None:
    assert all(torch.equal(half["gathered"], rows()) for half in halves)


def test_the_gradient_of_gathered_rows_is_summed_over_processes(
    halves: list[dict[str, Any]], whole: dict[str, Any]
) -> None:
    joined = torch.cat([half["gathered_gradient"] for half in halves])
    assert_equal_up_to_rounding(joined, 2 * whole["gathered_gradient"])


def test_shuffled_rows_return_to_their_process(halves: list[dict[str, Any]]) -> None:
    assert torch.equal(torch.cat([half["shuffled"] for half in halves]), rows())
