"""The declarations of a method, read without knowing which one it is."""

from dataclasses import replace

from pretrain.method import BatchNeeds
from pretrain.methods import METHODS
from tests.tiny_methods import tiny_config, tiny_method


def test_a_sensible_ridge_silences_the_caution_about_whitening() -> None:
    method = tiny_method("simtrace")
    features = method.config.embedding_dim
    method.config = replace(method.config, ridge=1e-3)
    (caution,) = method.cautions(batch_size=features // 2)
    assert f"{features} rows whiten {features} features with ridge 0.001" in caution
    assert method.cautions(batch_size=features) == []
    method.config = replace(method.config, ridge=1.0)
    assert method.cautions(batch_size=features // 2) == []


def test_the_needs_of_a_batch_are_settings_and_loracs_local_prior() -> None:
    moco, lorac = tiny_config("moco"), tiny_config("lorac")
    needs = METHODS["moco"][0].batch_needs(moco)
    assert needs == BatchNeeds(bn_splits=moco.bn_splits, queue_size=moco.queue_size)
    for prior, expected in (("batch", True), ("laplace", False)):
        config = replace(lorac, prior=prior)
        assert METHODS["lorac"][0].batch_needs(config).local_prior == expected
