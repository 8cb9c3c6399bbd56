"""Every loss: float32 under autocast, exact gradients, finite at constant outputs."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn.functional import normalize

from pretrain.methods.barlow_twins import barlow_twins_loss
from pretrain.methods.byol import byol_loss
from pretrain.methods.co2 import consistency_loss
from pretrain.methods.dino import dino_loss
from pretrain.methods.instdisc import nce_loss, softmax_loss
from pretrain.methods.jcl import jcl_loss, multi_key_loss
from pretrain.methods.looc import looc_loss, moco_pp_loss
from pretrain.methods.lorac import lorac_loss
from pretrain.methods.nnclr import neighbor_loss
from pretrain.methods.ressl import relation_loss
from pretrain.methods.simclr import nt_xent_loss
from pretrain.methods.simsiam import simsiam_loss
from pretrain.methods.swav import swav_loss
from pretrain.methods.uniclr import ONE_PAIR, uniclr_loss
from pretrain.methods.vicreg import vicreg_loss
from pretrain.methods.wmse import wmse_loss
from pretrain.methods.zero_cl import zero_cl_loss
from pretrain.parts.losses import instance_discrimination
from pretrain.recipes.uniclr import UniCLRConfig

Loss = Callable[[Tensor, Tensor], Tensor]


def uniclr(**settings: Any) -> Loss:
    config = UniCLRConfig(embedding_dim=6, **settings)
    return lambda z1, z2: uniclr_loss(torch.stack([z1, z2]), ONE_PAIR, config)["loss"]


def draw(*shape: int, unit: bool = True) -> Tensor:
    """Return fixed numbers, float64, as rows of unit length."""
    rows = torch.randn(*shape, generator=torch.Generator().manual_seed(7)).double()
    return normalize(rows, dim=-1) if unit else rows


QUEUE, SHORT = draw(40, 6).float(), {"temperature": 0.2}
BATCH: dict[str, Loss] = {
    "nt_xent": lambda z1, z2: nt_xent_loss(z1, z2, temperature=0.5)["loss"],
    "barlow_twins": lambda z1, z2: barlow_twins_loss(z1, z2, off_diagonal_weight=0.3)["loss"],
    "vicreg": lambda z1, z2: vicreg_loss(
        z1, z2, invariance_weight=2.0, variance_weight=3.0, covariance_weight=0.5
    )["loss"],
    "wmse": lambda z1, z2: wmse_loss(
        torch.stack([z1, z2])[..., :3], torch.arange(8)[None], whitening_size=8
    )["loss"],
    "affinity": uniclr(variant="affinity"),
    "whitening": uniclr(variant="whitening", ridge=0.1),
    "trace": uniclr(variant="trace", ridge=0.1),
}
"""Losses of two views (8, 6) of any scale, fully differentiable.

They compute in the views' type, but at least in float32.
"""
OTHERS: dict[str, Loss] = {
    "zero_cl": lambda z1, z2: zero_cl_loss(z1, z2, ridge=0.1)["loss"],
    "byol": byol_loss,
    "simsiam": lambda z1, z2: simsiam_loss(z1, z2, z2, z1),
}
"""Losses of two views in which a part is a constant."""
OF_QUERIES: dict[str, Loss] = {
    "moco": lambda q, k: instance_discrimination(q, k, QUEUE, **SHORT)["loss"],
    "moco smoothed": lambda q, k: (
        instance_discrimination(q, k, QUEUE, **SHORT, label_smoothing=0.1)["loss"]
    ),
    "multi_key": lambda q, k: multi_key_loss(
        q, torch.stack([k, k.roll(1, 0)], dim=1), QUEUE, **SHORT
    ),
    "jcl": lambda q, k: jcl_loss(
        q, torch.stack([k, k.roll(1, 1)], 1), QUEUE, **SHORT, covariance_weight=4.0
    ),
    "co2": lambda q, k: consistency_loss(q, k, QUEUE, **SHORT),
    "lorac": lambda q, k: lorac_loss(
        q[None], k, QUEUE, **SHORT, log_prior=torch.linspace(-1, 0, 8)
    ),
    "ressl": lambda q, k: relation_loss(q, k, QUEUE, **SHORT, target_temperature=0.1),
    "nnclr": lambda q, k: neighbor_loss(k, q, **SHORT),
    "looc": lambda q, k: looc_loss(
        torch.stack([q, q]), torch.stack([k, -k]).expand(2, 2, 8, 6), QUEUE.expand(2, 40, 6),
        **SHORT,
    ),
    "moco_pp": lambda q, k: moco_pp_loss(
        torch.stack([q, q]), torch.stack([k, -k]), QUEUE.expand(2, 40, 6), **SHORT
    ),
    "instdisc": lambda q, k: nce_loss(
        q, k, QUEUE.expand(8, 40, 6), **SHORT, log_partition=torch.tensor(4.0), num_images=99
    )[0],
    "instdisc, whole bank": lambda q, k: softmax_loss(
        q, torch.cat([k, QUEUE]), torch.arange(8), **SHORT
    ),
    "swav": lambda q, k: swav_loss(
        torch.stack([q, k]), torch.stack([k, k]).softmax(dim=2), temperature=0.1
    ),
    "dino": lambda q, k: dino_loss(
        torch.stack([q, k]), torch.stack([k, k]), torch.linspace(0, 1, 6),
        temperature=0.1, target_temperature=0.05,
    )["loss"],
}  # fmt: skip
"""Losses of normalized queries and keys (8, 6), always in float32."""


def views() -> tuple[Tensor, Tensor]:
    """Two correlated views (8, 6), float64."""
    first, noise = draw(2, 8, 6, unit=False)
    return 2 * first + 1, first + 0.7 * noise


def test_every_loss_is_the_same_in_float32_under_autocast() -> None:
    pairs = {
        name: (loss, [rows.float() for rows in views()]) for name, loss in (BATCH | OTHERS).items()
    }
    pairs |= {
        f"{name}, bfloat16": (loss, [rows.bfloat16() for rows in views()])
        for name, loss in (BATCH | OTHERS).items()
    }
    pairs |= {
        name: (loss, [normalize(rows.float(), dim=1) for rows in views()])
        for name, loss in OF_QUERIES.items()
    }
    offenders = []
    for name, (loss, rows) in pairs.items():
        expected = loss(*[z.float() for z in rows])
        with torch.autocast("cpu", torch.bfloat16):
            result = loss(*rows)
        if result.dtype != torch.float32 or not torch.equal(result, expected):
            offenders.append(name)
    assert offenders == []


def test_gradients_in_float64_are_those_of_finite_differences(subtests: pytest.Subtests) -> None:
    for name in BATCH:
        with subtests.test(name=name):
            rows = tuple(z.requires_grad_() for z in views())
            assert torch.autograd.gradcheck(BATCH[name], rows)


def test_gradients_of_queries_are_the_slopes_of_the_loss() -> None:
    # in float32 a step of 2^-6 is far above the rounding of the loss, and what it adds to the slope
    # of a chord, a sixth of the third derivative, falls with its square: two chords extrapolate it
    offenders = {}
    for name, loss in OF_QUERIES.items():
        query, key = (normalize(rows.float(), dim=1) for rows in views())
        leaf = query.clone().requires_grad_()
        loss(leaf, key).backward()
        assert leaf.grad is not None
        direction = leaf.grad / leaf.grad.norm()
        chords = [
            (loss(query + step * direction, key) - loss(query - step * direction, key)) / (2 * step)
            for step in (2**-6, 2**-7)
        ]
        slope = (4 * chords[1] - chords[0]) / 3
        error = (leaf.grad * direction).sum() / slope - 1
        if error.abs() > 0.01:
            offenders[name] = error.item()
    assert offenders == {}


@pytest.mark.parametrize("dim", [3, 40])
def test_constant_outputs_have_a_finite_loss_and_gradient(dim: int) -> None:
    offenders = []
    for value in (0.0, 0.3, 1e4):
        for name, loss in (BATCH | OTHERS).items():
            z1, z2 = (torch.full((8, dim), value, requires_grad=True) for _ in range(2))
            result = loss(z1, z2)
            result.backward()
            gradients = [z.grad for z in (z1, z2) if z.grad is not None]
            if not result.isfinite() or not all(g.isfinite().all() for g in gradients):
                offenders.append((name, value))
    assert offenders == []
