"""SwAV and DINO beside the modules of lightly, an optional extra.

What lightly does otherwise: its SwAV codes know the images of other processes only with
`sinkhorn_gather_distributed`, which is off unless told, overflow in half precision, and go to every
view that it is given as large, so that a third one without must be given as small; its prototypes
have a bias, its caller must normalize them, and count steps to freeze them and epochs to freeze
DINO's last layer; its target temperature warms up by epochs, ours by the schedule's unit.
"""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from pretrain.methods.dino import Head, dino_loss, next_center
from pretrain.methods.swav import sinkhorn, swav_loss
from pretrain.recipes.dino import DINOConfig
from tests.rounding import SHORT_CHAIN, assert_equal_up_to_rounding, rounding_error

lightly_loss = pytest.importorskip(
    "lightly.loss", reason="needs lightly: pip install -e .[compare]"
)
lightly_heads = pytest.importorskip("lightly.models.modules.heads")
lightly_swav = pytest.importorskip("lightly.loss.swav_loss")


def cosines(*shape: int, num_prototypes: int = 30) -> Tensor:
    """Scores (..., K) of random embeddings."""
    generator = torch.Generator().manual_seed(0)
    embeddings = normalize(torch.randn(*shape, 16, generator=generator), dim=-1)
    prototypes = normalize(torch.randn(num_prototypes, 16, generator=generator), dim=1)
    return embeddings @ prototypes.T


def test_codes_are_lightlys() -> None:
    scores = cosines(12)
    expected = lightly_swav.sinkhorn(scores, iterations=3, epsilon=0.05)
    found = sinkhorn(scores, epsilon=0.05, num_iterations=3)
    # the rounding of a score over epsilon becomes the relative error of its power
    error = rounding_error(torch.float32, magnitude=2 / 0.05, operations=SHORT_CHAIN)
    torch.testing.assert_close(found, expected, rtol=error, atol=0)


@pytest.mark.parametrize("num_queued", [0, 40])
@pytest.mark.parametrize("num_small", [0, 6])
def test_swav_loss_and_gradient_are_lightlys(num_small: int, num_queued: int) -> None:
    ours, theirs = (cosines(2 + num_small, 12).requires_grad_() for _ in range(2))
    queued = cosines(2, num_queued)
    joined = torch.cat([ours[:2].detach(), queued], dim=1)
    codes = sinkhorn(joined, epsilon=0.05, num_iterations=3)[:, :12]
    loss = swav_loss(ours, codes, temperature=0.1)
    peer = lightly_loss.SwaVLoss(temperature=0.1, sinkhorn_iterations=3, sinkhorn_epsilon=0.05)
    expected = peer(list(theirs[:2]), list(theirs[2:]), list(queued) if num_queued else None)
    assert_equal_up_to_rounding(loss, expected[0])  # lightly's is a vector of one number
    loss.backward()
    expected.sum().backward()
    assert theirs.grad is not None
    # the codes have the rounding of scores over epsilon; a term's share is its weight
    assert_equal_up_to_rounding(
        ours.grad,
        theirs.grad,
        magnitude=1 / 0.05 * theirs.grad.abs().max().item(),
        operations=SHORT_CHAIN,
    )


@pytest.mark.parametrize("num_assigned", [2, 3])
def test_lightly_gives_codes_to_all_views_that_it_is_told_are_large(num_assigned: int) -> None:
    scores = cosines(3 + 5, 12)
    large, small = list(scores[:num_assigned]), list(scores[num_assigned:])
    codes = sinkhorn(scores[:num_assigned], epsilon=0.05, num_iterations=3)
    loss = swav_loss(scores, codes, temperature=0.1)
    assert_equal_up_to_rounding(loss, lightly_loss.SwaVLoss()(large, small)[0])


@pytest.mark.parametrize("num_small", [0, 6])
def test_dino_loss_gradient_and_center_are_lightlys(num_small: int) -> None:
    peer = lightly_loss.DINOLoss(output_dim=30, student_temp=0.1, center_momentum=0.9)
    center = torch.zeros(30)
    for step in range(3):
        target_logits = cosines(2, 12).roll(step, dims=1)
        ours, theirs = (cosines(2 + num_small, 12).requires_grad_() for _ in range(2))
        loss = dino_loss(ours, target_logits, center, temperature=0.1, target_temperature=0.05)
        expected = peer(list(target_logits), list(theirs), teacher_temp=0.05)
        torch.testing.assert_close(loss, expected)
        loss.backward()
        expected.backward()
        assert_equal_up_to_rounding(ours.grad, theirs.grad)
        center = next_center(center, target_logits, momentum=0.9)
        torch.testing.assert_close(center, peer.center.flatten())


@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
@pytest.mark.parametrize("head_norm", [True, False])
def test_the_head_of_dino_is_lightlys(head_norm: bool) -> None:
    torch.manual_seed(0)
    head = Head(24, DINOConfig(hidden_dim=32, embedding_dim=16, output_dim=30, head_norm=head_norm))
    peer = lightly_heads.DINOProjectionHead(24, 32, 16, 30, batch_norm=head_norm)
    for own, other in zip(linears(head.layers), linears(peer.layers), strict=True):
        other.weight.data.copy_(own.weight)
    peer.last_layer.weight_v.data.copy_(head.last_layer.weight)
    features = torch.randn(12, 24)
    assert_equal_up_to_rounding(head(features), peer(features))


def linears(layers: nn.Module) -> list[nn.Linear]:
    return [layer for layer in layers.modules() if isinstance(layer, nn.Linear)]
