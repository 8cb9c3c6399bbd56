"""Learning rates that are reported, and those that are left out."""

import pytest

from pretrain.running.errors import NotFiniteError
from transfer.finetuning.schedule import scores_by_name, search_learning_rates


def diverging_from_one(rate: float) -> float:
    """A score, as a training on held-out images would give it."""
    if rate >= 1:
        raise NotFiniteError("a loss is not finite")
    return 10 * rate


def test_a_rate_that_diverges_is_left_out_and_if_all_do_it_is_an_error() -> None:
    assert search_learning_rates((0.1, 0.5, 1.0), diverging_from_one, "AP") == {0.1: 1.0, 0.5: 5.0}
    assert search_learning_rates((), diverging_from_one, "AP") == {}
    assert scores_by_name({0.02: 1.5, 1e-05: 2.0}) == {"0.02": 1.5, "1e-05": 2.0}
    with pytest.raises(NotFiniteError, match=r"\(1.0, 2.0\)"):
        search_learning_rates((1.0, 2.0), diverging_from_one, "AP")
