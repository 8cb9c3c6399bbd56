"""InfoNCE and MoCo against their equations by other routes: He et al., arXiv:1911.05722."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import kl_div, normalize

from pretrain.methods.jcl import JCL
from pretrain.methods.moco import MoCo
from pretrain.parts.losses import instance_discrimination
from pretrain.parts.view import View
from pretrain.recipes.jcl import JCLConfig
from pretrain.recipes.moco import MoCoConfig
from tests.rounding import SHORT_CHAIN, assert_equal_up_to_rounding


def info_nce(query: Tensor, key: Tensor, queue: Tensor, **settings: float) -> Tensor:
    """Return the loss that MoCo trains with."""
    return instance_discrimination(query, key, queue, **settings)["loss"]


def tiny_moco(**changes: object) -> MoCo:
    """MoCo on a linear backbone of 3x4x4 images."""
    torch.manual_seed(0)
    settings: dict[str, object] = {"queue_size": 16, "embedding_dim": 8}
    backbone = nn.Sequential(nn.Flatten(), nn.Linear(48, 12))
    return MoCo(backbone, 12, MoCoConfig(**(settings | changes)))  # type: ignore[arg-type]


def two_views(n: int = 5) -> list[Tensor]:
    """2 of (n, 3, 4, 4)."""
    return list(torch.randn(2, n, 3, 4, 4, generator=torch.Generator().manual_seed(1)))


@torch.no_grad()
def embed(method: MoCo, images: Tensor) -> Tensor:
    """(n, d) of unit length; before the first step the key encoder's are the same."""
    return normalize(method.encoder(images), dim=1)


def test_step_contrasts_with_the_queue_before_it_and_pushes_the_key() -> None:
    method = tiny_moco()
    views = two_views()
    before = method.queue.keys.clone()
    query, key = (embed(method, images) for images in views)
    expected = info_nce(query, key, before, temperature=0.2)
    torch.testing.assert_close(method(views, 1.0)["loss"], expected)
    torch.testing.assert_close(method.queue.keys[:5], key)
    assert torch.equal(method.queue.keys[5:], before[5:])


def test_jcl_with_one_key_takes_the_same_steps() -> None:
    moco = tiny_moco()
    config = JCLConfig(num_keys=1, queue_size=16, embedding_dim=8, covariance_weight=4.0)
    jcl = JCL(nn.Sequential(nn.Flatten(), nn.Linear(48, 12)), 12, config)
    jcl.load_state_dict(moco.state_dict())
    for _ in range(2):
        losses = [method(two_views(), 1.0)["loss"] for method in (moco, jcl)]
        torch.testing.assert_close(losses[0], losses[1])
    torch.testing.assert_close(moco.queue.keys, jcl.queue.keys)


def test_a_symmetric_loss_is_the_mean_of_both_directions() -> None:
    views = two_views()
    forth = tiny_moco()(views, 1.0)
    back = tiny_moco()(views[::-1], 1.0)
    both = tiny_moco(symmetric=True)(views, 1.0)
    assert forth["loss"] != back["loss"]
    for name in ("loss", "instance_accuracy"):
        torch.testing.assert_close(both[name], (forth[name] + back[name]) / 2)


def test_a_symmetric_step_pushes_the_second_views_keys_and_then_the_firsts() -> None:
    method = tiny_moco(symmetric=True)
    first, second = two_views()
    before = method.queue.keys.clone()
    keys = [embed(method, images) for images in (second, first)]
    method([first, second], 1.0)
    torch.testing.assert_close(method.queue.keys[:10], torch.cat(keys))
    assert torch.equal(method.queue.keys[10:], before[10:])


def test_the_consistency_of_co2_is_logged_and_not_minimized() -> None:
    method = tiny_moco(consistency_temperature=0.04)
    views = two_views()
    query, key = (embed(method, images) for images in views)
    log_q, log_p = ((rows @ method.queue.keys.T / 0.04).log_softmax(dim=1) for rows in (query, key))
    both = [
        kl_div(a, b, log_target=True, reduction="batchmean")
        for a, b in ((log_q, log_p), (log_p, log_q))
    ]
    metrics = method(views, 1.0)
    # the divergence is a small difference of logarithms of up to a similarity over 0.04
    assert_equal_up_to_rounding(
        metrics["consistency"], sum(both) / 2, magnitude=1 / 0.04, operations=SHORT_CHAIN
    )
    assert not metrics["consistency"].requires_grad
    silent = tiny_moco(consistency_temperature=0.0)(views, 1.0)
    assert torch.equal(metrics["loss"], silent["loss"])
    assert "consistency" not in silent
    method.metrics_read = False
    assert "consistency" not in method(views, 1.0)


def test_smoothing_leaves_the_logged_instance_discrimination_as_it_is() -> None:
    metrics = tiny_moco(label_smoothing=0.1)(two_views(), 1.0)
    expected = tiny_moco()(two_views(), 1.0)
    assert torch.equal(metrics["instance_discrimination"], expected["loss"])
    assert not torch.equal(metrics["loss"], expected["loss"])


def test_augmentations_are_shared_with_the_key_or_withheld_from_the_query() -> None:
    assert tiny_moco().views == (View(), View())
    assert tiny_moco(shared=("rotation",)).views == (View(), View(copies=("rotation",)))
    assert tiny_moco(key_only=("color",)).views == (View(without=("color",)), View())


@pytest.mark.parametrize(
    "changes",
    [
        {"key_only": ("color",), "symmetric": True},
        {"key_only": ("color", "blur"), "shared": ("color",)},
    ],
)
def test_contradicting_wishes_for_views_are_refused(changes: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="'color'"):
        tiny_moco(**changes)
