"""The declarations of a method, read without knowing which one it is."""

from dataclasses import replace

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


def test_a_sensible_ridge_silences_the_caution_about_whitening() -> None:
    method = tiny_method("simtrace")
    features = method.config.embedding_dim
    method.config = replace(method.config, ridge=1e-3)
    (caution,) = method.cautions(batch_size=features // 2)
    assert f"{features} rows whiten {features} features with ridge 0.001" in caution
    assert method.cautions(batch_size=features) == []
    method.config = replace(method.config, ridge=1.0)
    assert method.cautions(batch_size=features // 2) == []


def test_what_methods_declare_is_their_own() -> None:
    labels, indices, offenders = [], [], []
    for name in METHODS:
        method = tiny_method(name)
        parts = [method.get_submodule(part) for part in method.fixed_rate]
        weights = [method.get_parameter(part) for part in method.frozen_until]
        exported = list(method.backbone.parameters())
        if not (method.views and exported and all(parts) and all(w.requires_grad for w in weights)):
            offenders.append(name)
        labels += [name] * method.uses_labels
        indices += [name] * method.uses_indices
    assert (labels, indices, offenders) == (["supervised"], ["instdisc"], [])


def test_the_needs_of_a_batch_are_settings_and_loracs_local_prior() -> None:
    moco, lorac = tiny_config("moco"), tiny_config("lorac")
    needs = METHODS["moco"][0].batch_needs(moco)
    assert needs == BatchNeeds(bn_splits=moco.bn_splits, queue_size=moco.queue_size)
    for prior, expected in (("batch", True), ("laplace", False)):
        config = replace(lorac, prior=prior)
        assert METHODS["lorac"][0].batch_needs(config).local_prior == expected
