"""Options of MoCo: a symmetric loss, shared augmentations, logged metrics."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from pretrain.parts.queue import queue_divergence
from pretrain.parts.view import View
from tests.tiny_methods import tiny_batch, tiny_method


def moco(**changes: Any) -> Any:
    return tiny_method("moco", norm=nn.Identity, **changes)


def views() -> list[Tensor]:
    return tiny_batch(moco()).views


def test_a_symmetric_loss_is_the_mean_of_both_directions() -> None:
    forth, back = moco()(views(), 1.0), moco()(views()[::-1], 1.0)
    symmetric_outputs = moco(symmetric=True)(views(), 1.0)
    assert forth["loss"] != back["loss"]
    for name in ("loss", "instance_accuracy"):
        torch.testing.assert_close(symmetric_outputs[name], (forth[name] + back[name]) / 2)


def test_symmetric_step_pushes_keys_of_both_views() -> None:
    method = moco(symmetric=True)
    with torch.no_grad():
        keys = [normalize(method.encoder(images), dim=1) for images in views()[::-1]]
    method(views(), 1.0)
    torch.testing.assert_close(method.queue.keys[:16], torch.cat(keys))


def test_the_consistency_of_co2_is_logged_and_not_minimized() -> None:
    method = moco(consistency_temperature=0.04)
    with torch.no_grad():
        query, key = (normalize(method.encoder(images), dim=1) for images in views())
    expected = queue_divergence(query, key, method.queue.keys, temperature=0.04).mean()
    metrics, silent = method(views(), 1.0), moco(consistency_temperature=0.0)(views(), 1.0)
    torch.testing.assert_close(metrics["consistency"], expected)
    assert torch.equal(metrics["loss"], silent["loss"])
    assert "consistency" not in silent
    method.metrics_read = False
    assert "consistency" not in method(views(), 1.0)


def test_smoothing_leaves_the_logged_instance_discrimination_as_it_is() -> None:
    metrics, expected = moco(label_smoothing=0.1)(views(), 1.0), moco()(views(), 1.0)
    assert torch.equal(metrics["instance_discrimination"], expected["loss"])
    assert not torch.equal(metrics["loss"], expected["loss"])


def test_augmentations_are_shared_with_the_key_or_withheld_from_the_query() -> None:
    assert moco(shared=("rotation",)).views == (View(), View(copies=("rotation",)))
    assert moco(key_only=("color",)).views == (View(without=("color",)), View())


def test_an_augmentation_that_is_shared_and_withheld_is_refused() -> None:
    with pytest.raises(ValueError, match="'color'"):
        moco(key_only=("color", "blur"), shared=("color",))
