"""Methods beside the modules of lightly, an optional extra: `pip install .[compare]`.

What lightly does otherwise. Its losses know the images of other processes only with
`gather_distributed`, which is off unless told, its W-MSE never. SwAV: codes overflow in half
precision and go to every view that it is given as large, so that a third one without must be given
as small; its prototypes have a bias, its caller must normalize them, and count steps to freeze them
and epochs to freeze DINO's last layer. DINO: its target temperature warms up by epochs, ours by the
schedule's unit. VICReg: the mean of the variance term over views, as the released code has. W-MSE:
it draws the order of the images itself, divides covariances by one less than the rows, which the
lengths undo, refuses fewer rows than twice the features, and raises where there is no Cholesky
factor: ours counts as zero. BYOL: the mean of two negative cosines, a quarter of equation 2's sum
less one; its heads have a bias in their last layer. Its schedules start at their beginning, ours
one step in, and both reach their end with the last step. It has no Zero-CL, and no bank with a row
for each image.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from pretrain.methods.barlow_twins import barlow_twins_loss
from pretrain.methods.byol import BYOL, byol_loss
from pretrain.methods.dino import Head, dino_loss, next_center
from pretrain.methods.simclr import SimCLR, nt_xent_loss
from pretrain.methods.simsiam import SimSiam, simsiam_loss
from pretrain.methods.swav import sinkhorn, swav_loss
from pretrain.methods.vicreg import vicreg_loss
from pretrain.methods.wmse import wmse_loss
from pretrain.recipes.byol import BYOLConfig
from pretrain.recipes.dino import DINOConfig
from pretrain.recipes.simclr import SimCLRConfig
from pretrain.recipes.simsiam import SimSiamConfig
from tests.rounding import SHORT_CHAIN, assert_equal_up_to_rounding

NEEDS = "needs lightly: pip install '.[compare]'"
lightly_loss: Any = pytest.importorskip("lightly.loss", reason=NEEDS)
lightly_heads: Any = pytest.importorskip("lightly.models.modules.heads", reason=NEEDS)


def cosines(*shape: int, num_prototypes: int = 30) -> Tensor:
    """Scores (..., K) of random embeddings."""
    generator = torch.Generator().manual_seed(0)
    embeddings = normalize(torch.randn(*shape, 16, generator=generator), dim=-1)
    prototypes = normalize(torch.randn(num_prototypes, 16, generator=generator), dim=1)
    return embeddings @ prototypes.T


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


Loss = Callable[[Tensor], Tensor]


def lightly_wmse(views: Tensor) -> Tensor:
    loss = lightly_loss.WMSELoss(
        embedding_dim=16, w_size=32, w_iter=2, num_samples=2, track_running_stats=False
    )
    torch.manual_seed(0)
    found: Tensor = loss(views.flatten(0, 1))
    return found


def our_wmse(views: Tensor) -> Tensor:
    torch.manual_seed(0)
    orders = torch.stack([torch.randperm(64), torch.randperm(64)])
    return wmse_loss(views, orders, whitening_size=32)["loss"]


PAIRS: dict[str, tuple[Loss, Loss]] = {
    "barlow_twins": (
        lambda views: barlow_twins_loss(*views, off_diagonal_weight=0.005)["loss"],
        lambda views: lightly_loss.BarlowTwinsLoss(lambda_param=0.005)(*views),
    ),
    "vicreg": (
        lambda views: vicreg_loss(
            *views, invariance_weight=25.0, variance_weight=12.5, covariance_weight=1.0
        )["loss"],
        lambda views: lightly_loss.VICRegLoss(lambda_param=25.0, mu_param=25.0, nu_param=1.0)(
            *views
        ),
    ),
    "wmse": (our_wmse, lightly_wmse),
}


@pytest.mark.parametrize("name", PAIRS)
def test_losses_of_correlations_and_their_gradients_are_lightlys(name: str) -> None:
    generator = torch.Generator().manual_seed(0)
    image = torch.randn(64, 16, generator=generator)
    noise = 0.5 * torch.randn(2, 64, 16, generator=generator)
    views = ((image + noise) * torch.linspace(0.3, 2, 16) + 1).double().requires_grad_()
    ours, theirs = (loss(views) for loss in PAIRS[name])
    torch.testing.assert_close(ours, theirs)
    gradients = [torch.autograd.grad(loss, views)[0] for loss in (ours, theirs)]
    torch.testing.assert_close(gradients[0], gradients[1])


def rows(number: int) -> list[Tensor]:
    """Some of (n, d), of any length, in double precision."""
    generator = torch.Generator().manual_seed(0)
    common = torch.randn(6, 8, generator=generator)
    noise = torch.randn(number, 6, 8, generator=generator)
    return [(common + 0.7 * part).double().requires_grad_() for part in noise]


def same_weights(ours: nn.Module, theirs: nn.Module) -> None:
    """Give a head of lightly's the tensors of ours, which stand in the same order."""
    found, expected = ours.state_dict(), theirs.state_dict()
    assert [value.shape for value in found.values()] == [value.shape for value in expected.values()]
    theirs.load_state_dict(dict(zip(expected, found.values(), strict=True)))


@pytest.mark.parametrize("temperature", [0.07, 0.1, 0.5, 1.0])
def test_nt_xent_and_its_gradient_are_lightlys(temperature: float) -> None:
    views = rows(2)
    found = nt_xent_loss(*views, temperature=temperature)["loss"]
    expected = lightly_loss.NTXentLoss(temperature=temperature)(*views)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
    ours, theirs = (torch.autograd.grad(loss, views) for loss in (found, expected))
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)


def test_the_loss_of_simsiam_and_its_gradient_are_lightlys() -> None:
    p1, p2, z1, z2 = rows(4)
    criterion = lightly_loss.NegativeCosineSimilarity()
    expected = 0.5 * (criterion(p1, z2.detach()) + criterion(p2, z1.detach()))
    found = simsiam_loss(p1, p2, z1, z2)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
    ours, theirs = (torch.autograd.grad(loss, (p1, p2)) for loss in (found, expected))
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)


def test_the_loss_of_byol_is_four_times_lightlys_plus_four() -> None:
    p1, p2, z1, z2 = rows(4)
    criterion = lightly_loss.NegativeCosineSimilarity()
    expected = 0.5 * (criterion(p1, z2.detach()) + criterion(p2, z1.detach()))
    found = byol_loss(p1, z2) + byol_loss(p2, z1)
    torch.testing.assert_close(found, 4 + 4 * expected, rtol=1e-9, atol=1e-12)


def test_the_heads_of_simsiam_are_lightlys() -> None:
    config = SimSiamConfig(hidden_dim=16, predictor_dim=4, embedding_dim=8)
    method = SimSiam(nn.Flatten(), 12, config)
    projector = lightly_heads.SimSiamProjectionHead(12, 16, 8)
    predictor = lightly_heads.SimSiamPredictionHead(8, 4, 8)
    same_weights(method.encoder[1], projector)
    same_weights(method.predictor, predictor)
    images = torch.randn(6, 3, 2, 2)
    embeddings = method.encoder(images)
    torch.testing.assert_close(embeddings, projector(images.flatten(1)))
    torch.testing.assert_close(method.predictor(embeddings), predictor(embeddings))


def test_the_projector_of_simclr_is_lightlys() -> None:
    method = SimCLR(nn.Flatten(), 12, SimCLRConfig(hidden_dim=16, embedding_dim=8))
    projector = lightly_heads.SimCLRProjectionHead(12, 16, 8)
    same_weights(method.encoder[1], projector)
    images = torch.randn(6, 3, 2, 2)
    torch.testing.assert_close(method.encoder(images), projector(images.flatten(1)))


def test_the_heads_of_byol_are_lightlys_without_the_bias_of_their_last_layer() -> None:
    method: Any = BYOL(nn.Flatten(), 12, BYOLConfig(hidden_dim=16, embedding_dim=8))
    for ours, theirs in (
        (method.encoder[1], lightly_heads.BYOLProjectionHead(12, 16, 8)),
        (method.predictor, lightly_heads.BYOLPredictionHead(8, 16, 8)),
    ):
        last = theirs.layers[-1]
        nn.init.zeros_(last.bias)
        last.register_parameter("bias", None)
        same_weights(ours, theirs)
        inputs = torch.randn(6, ours[0].in_features)
        torch.testing.assert_close(ours(inputs), theirs(inputs))
