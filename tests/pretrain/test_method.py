"""The declarations of a method, read without knowing which one it is."""

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from pretrain.method import BatchNeeds, Method
from pretrain.methods import METHODS
from tests.tiny_methods import tiny_config, tiny_method


class Plain(Method):
    """A method that declares nothing."""

    def forward(self, views: list[Tensor], progress: float) -> dict[str, Tensor]:
        return {"loss": torch.zeros(())}


def test_the_defaults_ask_nothing() -> None:
    plain = Plain()
    assert not plain.uses_labels
    assert not plain.uses_indices
    assert not plain.fixed_rate
    assert not plain.frozen_until
    assert plain.batch_needs(None) == BatchNeeds(bn_splits=0, whitening_size=1, queue_size=0)
    assert plain.cautions(batch_size=1) == []


@pytest.mark.parametrize("name", METHODS)
def test_every_method_says_which_views_it_wants_and_what_is_exported(name: str) -> None:
    method = tiny_method(name)
    assert isinstance(method, Method)
    assert method.views
    assert {p.shape for p in method.backbone.parameters()}


def test_only_supervised_training_uses_labels() -> None:
    users = [name for name in METHODS if tiny_method(name).uses_labels]
    assert users == ["supervised"]
    assert tiny_method("supervised").num_classes == 2


def test_only_instance_discrimination_uses_indices() -> None:
    users = [name for name in METHODS if tiny_method(name).uses_indices]
    assert users == ["instdisc"]
    assert tiny_method("instdisc").num_images == 20


@pytest.mark.parametrize("name", METHODS)
def test_every_name_that_a_method_declares_is_one_of_its_own(name: str) -> None:
    method = tiny_method(name)
    assert all(method.get_submodule(part) for part in method.fixed_rate)
    assert all(method.get_parameter(part).requires_grad for part in method.frozen_until)


@pytest.mark.parametrize("name", METHODS)
def test_needs_of_a_batch_are_the_settings_of_the_same_name(name: str) -> None:
    config = tiny_config(name)
    needs = METHODS[name][0].batch_needs(config)
    settings = {key: getattr(config, key) for key in vars(needs) if hasattr(config, key)}
    assert needs == BatchNeeds(**settings)


def test_a_sensible_ridge_silences_the_caution_about_whitening() -> None:
    method = tiny_method("simtrace")
    features = method.config.embedding_dim
    method.config = replace(method.config, ridge=1e-3)
    (caution,) = method.cautions(batch_size=features // 2)
    assert f"{features} rows whiten {features} features with ridge 0.001" in caution
    assert method.cautions(batch_size=features) == []
    method.config = replace(method.config, ridge=1.0)
    assert method.cautions(batch_size=features // 2) == []
