"""Heads against lightly's, an optional extra: `pip install .[compare]`.

Losses, and DINO's head, are compared with equations in the tests of each method. Lightly differs as
follows. Its losses use the images of other processes only with `gather_distributed`; its W-MSE
never does. In SwAV, codes overflow in half precision, prototypes have a bias, and its caller
normalizes them and counts steps to freeze them. DINO's target temperature and last layer follow
epochs. W-MSE raises an error without a Cholesky factor. BYOL's heads have a bias in their last
layer. It does not include Zero-CL, or a bank with a row for each image.
"""

from typing import Any

import pytest
import torch
from torch import nn

from pretrain.methods.byol import BYOL
from pretrain.methods.simclr import SimCLR
from pretrain.methods.simsiam import SimSiam
from pretrain.recipes.byol import BYOLConfig
from pretrain.recipes.simclr import SimCLRConfig
from pretrain.recipes.simsiam import SimSiamConfig

NEEDS = "needs lightly: pip install '.[compare]'"
lightly_heads: Any = pytest.importorskip("lightly.models.modules.heads", reason=NEEDS)


def same_weights(ours: nn.Module, theirs: nn.Module) -> None:
    """Copy our tensors into lightly's head; both have the same order."""
    result, expected = ours.state_dict(), theirs.state_dict()
    assert [value.shape for value in result.values()] == [
        value.shape for value in expected.values()
    ]
    theirs.load_state_dict(dict(zip(expected, result.values(), strict=True)))


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
