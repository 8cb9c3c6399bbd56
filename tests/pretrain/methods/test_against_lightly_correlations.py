"""Barlow Twins, VICReg and W-MSE against lightly's losses; `pip install .[compare]`.

lightly has no Zero-CL. Differences: its VICReg takes the mean of the variance term over views, as
the released code does; its Barlow Twins and VICReg know the images of other processes only with
`gather_distributed`, which is off unless told, its W-MSE never; its W-MSE draws the order of the
images itself, divides covariances by one less than the rows, which the lengths undo, refuses fewer
rows than twice the features, and raises where there is no Cholesky factor: ours counts as zero.
"""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from pretrain.methods.barlow_twins import barlow_twins_loss
from pretrain.methods.vicreg import vicreg_loss
from pretrain.methods.wmse import wmse_loss

lightly: Any = pytest.importorskip("lightly.loss", reason="needs lightly: pip install '.[compare]'")

Loss = Callable[[Tensor], Tensor]


def lightly_wmse(views: Tensor) -> Tensor:
    loss = lightly.WMSELoss(
        embedding_dim=16, w_size=32, w_iter=2, num_samples=2, track_running_stats=False
    )
    torch.manual_seed(0)
    found: Tensor = loss(views.flatten(0, 1))
    return found


def our_wmse(views: Tensor) -> Tensor:
    torch.manual_seed(0)
    orders = torch.stack([torch.randperm(64), torch.randperm(64)])
    return wmse_loss(views, orders, whitening_size=32)[0]


PAIRS: dict[str, tuple[Loss, Loss]] = {
    "barlow_twins": (
        lambda views: barlow_twins_loss(*views, off_diagonal_weight=0.005).loss,
        lambda views: lightly.BarlowTwinsLoss(lambda_param=0.005)(*views),
    ),
    "vicreg": (
        lambda views: (
            vicreg_loss(
                *views, invariance_weight=25.0, variance_weight=12.5, covariance_weight=1.0
            ).loss
        ),
        lambda views: lightly.VICRegLoss(lambda_param=25.0, mu_param=25.0, nu_param=1.0)(*views),
    ),
    "wmse": (our_wmse, lightly_wmse),
}


@pytest.mark.parametrize("name", PAIRS)
def test_loss_and_gradient_are_lightlys(name: str) -> None:
    generator = torch.Generator().manual_seed(0)
    image = torch.randn(64, 16, generator=generator)
    noise = 0.5 * torch.randn(2, 64, 16, generator=generator)
    views = ((image + noise) * torch.linspace(0.3, 2, 16) + 1).double().requires_grad_()
    ours, theirs = (loss(views) for loss in PAIRS[name])
    torch.testing.assert_close(ours, theirs)
    gradients = [torch.autograd.grad(loss, views)[0] for loss in (ours, theirs)]
    torch.testing.assert_close(gradients[0], gradients[1])
