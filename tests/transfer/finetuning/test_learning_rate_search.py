"""Learning rates that are reported, and those that are left out."""

import math

import pytest

from transfer.finetuning.learning_rate_search import scores_by_name, search_learning_rates
from transfer.running.not_finite import NotFiniteError


def diverging_from_one(rate: float) -> float:
    """A score, as a training on held-out images would give it."""
    if rate >= 1:
        raise NotFiniteError("a loss is not finite")
    return 10 * rate


def test_a_rate_that_diverges_is_left_out() -> None:
    found = search_learning_rates((0.1, 0.5, 1.0), diverging_from_one, "AP")
    assert {rate: round(score, 6) for rate, score in found.items()} == {0.1: 1.0, 0.5: 5.0}


def test_rates_that_all_diverge_are_an_error() -> None:
    with pytest.raises(NotFiniteError, match=r"all of the learning rates \(1.0, 2.0\) diverged"):
        search_learning_rates((1.0, 2.0), diverging_from_one, "AP")


def test_without_rates_nothing_is_tried() -> None:
    assert search_learning_rates((), lambda rate: math.nan, "AP") == {}


def test_a_record_names_rates_by_their_digits() -> None:
    assert scores_by_name({0.02: 1.5, 1e-05: 2.0}) == {"0.02": 1.5, "1e-05": 2.0}
