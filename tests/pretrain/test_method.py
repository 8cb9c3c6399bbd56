"""Cautions of a method."""

from dataclasses import replace

from tests.tiny_methods import tiny_method


def test_a_sensible_ridge_silences_the_caution_about_whitening() -> None:
    method = tiny_method("simtrace")
    features = method.config.embedding_dim
    method.config = replace(method.config, ridge=1e-3)
    (caution,) = method.cautions(batch_size=features // 2)
    assert f"{features} rows whiten {features} features with ridge 0.001" in caution
    assert method.cautions(batch_size=features) == []
    method.config = replace(method.config, ridge=1.0)
    assert method.cautions(batch_size=features // 2) == []
