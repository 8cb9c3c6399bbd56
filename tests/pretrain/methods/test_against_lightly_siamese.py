"""SimCLR, BYOL and SimSiam against lightly's losses, heads and schedule; `pip install .[compare]`.

What lightly does otherwise: it minimizes the mean of two negative cosines for BYOL, a quarter of
equation 2's sum less one; its schedules start at their beginning, ours one step in, and both reach
their end with the last step; its BYOL heads have a bias in their last layer; its NT-Xent has the
other processes' views only with `gather_distributed`, which is off unless told. It has a ring of
past keys, but no bank with a row for each image and no noise-contrastive estimation: instance
discrimination has no counterpart.
"""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from pretrain.methods.byol import BYOL, byol_loss
from pretrain.methods.simclr import SimCLR, nt_xent_loss
from pretrain.methods.simsiam import SimSiam, simsiam_loss
from pretrain.parts.momentum_encoder import rising_momentum
from pretrain.recipes.byol import BYOLConfig
from pretrain.recipes.simclr import SimCLRConfig
from pretrain.recipes.simsiam import SimSiamConfig

pytest.importorskip("lightly", reason="needs lightly: pip install '.[compare]'")

from lightly.loss import NegativeCosineSimilarity, NTXentLoss
from lightly.models.modules import heads
from lightly.utils.scheduler import cosine_schedule


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
    found = nt_xent_loss(*views, temperature=temperature).loss
    expected = NTXentLoss(temperature=temperature)(*views)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
    ours, theirs = (torch.autograd.grad(loss, views) for loss in (found, expected))
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)


def test_the_loss_of_simsiam_and_its_gradient_are_lightlys() -> None:
    p1, p2, z1, z2 = rows(4)
    criterion = NegativeCosineSimilarity()
    expected = 0.5 * (criterion(p1, z2.detach()) + criterion(p2, z1.detach()))
    found = simsiam_loss(p1, p2, z1, z2)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-12)
    ours, theirs = (torch.autograd.grad(loss, (p1, p2)) for loss in (found, expected))
    torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-12)


def test_the_loss_of_byol_is_four_times_lightlys_plus_four() -> None:
    p1, p2, z1, z2 = rows(4)
    criterion = NegativeCosineSimilarity()
    expected = 0.5 * (criterion(p1, z2.detach()) + criterion(p2, z1.detach()))
    found = byol_loss(p1, z2) + byol_loss(p2, z1)
    torch.testing.assert_close(found, 4 + 4 * expected, rtol=1e-9, atol=1e-12)


def test_the_momentum_of_byol_is_lightlys_that_would_end_one_step_later() -> None:
    for step in range(100):
        theirs = cosine_schedule(step, 101, 0.996, 1.0)
        assert rising_momentum(0.996, step / 100) == pytest.approx(theirs, abs=1e-12)


def test_the_heads_of_simsiam_are_lightlys() -> None:
    config = SimSiamConfig(hidden_dim=16, predictor_dim=4, embedding_dim=8)
    method = SimSiam(nn.Flatten(), 12, config)
    projector = heads.SimSiamProjectionHead(12, 16, 8)
    predictor = heads.SimSiamPredictionHead(8, 4, 8)
    same_weights(method.encoder[1], projector)
    same_weights(method.predictor, predictor)
    images = torch.randn(6, 3, 2, 2)
    embeddings = method.encoder(images)
    torch.testing.assert_close(embeddings, projector(images.flatten(1)))
    torch.testing.assert_close(method.predictor(embeddings), predictor(embeddings))


def test_the_projector_of_simclr_is_lightlys() -> None:
    method = SimCLR(nn.Flatten(), 12, SimCLRConfig(hidden_dim=16, embedding_dim=8))
    projector = heads.SimCLRProjectionHead(12, 16, 8)
    same_weights(method.encoder[1], projector)
    images = torch.randn(6, 3, 2, 2)
    torch.testing.assert_close(method.encoder(images), projector(images.flatten(1)))


def test_the_heads_of_byol_are_lightlys_without_the_bias_of_their_last_layer() -> None:
    method: Any = BYOL(nn.Flatten(), 12, BYOLConfig(hidden_dim=16, embedding_dim=8))
    for ours, theirs in (
        (method.encoder[1], heads.BYOLProjectionHead(12, 16, 8)),
        (method.predictor, heads.BYOLPredictionHead(8, 16, 8)),
    ):
        last = theirs.layers[-1]
        nn.init.zeros_(last.bias)
        last.register_parameter("bias", None)
        same_weights(ours, theirs)
        inputs = torch.randn(6, ours[0].in_features)
        torch.testing.assert_close(ours(inputs), theirs(inputs))
