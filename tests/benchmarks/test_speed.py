"""Ways are timed in turn, and they do the same where they must."""

from functools import partial

import pytest

from benchmarks.speed import views
from benchmarks.speed.harness import compare

Output = pytest.CaptureFixture[str]


def test_ways_run_in_turn_after_a_warm_up() -> None:
    called: list[str] = []
    compare("", {way: partial(called.append, way) for way in "ab"}, 2)
    assert "".join(called) == "baabba"


def test_views_print_the_ratio_of_each_way(capsys: Output) -> None:
    views.run(views.Settings(images=2, rounds=1))
    assert capsys.readouterr().out.count("1.00 times as fast") == len(views.VIEWS)
