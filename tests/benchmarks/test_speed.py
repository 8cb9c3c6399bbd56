"""Alternatives are timed in turn and compute the same."""

from functools import partial
from pathlib import Path

import pytest

from benchmarks.gpu.timing import write_images
from benchmarks.speed import shared_extraction, views
from benchmarks.speed.harness import compare

Output = pytest.CaptureFixture[str]


def test_ways_run_in_turn_after_a_warm_up() -> None:
    called: list[str] = []
    compare("", {way: partial(called.append, way) for way in "ab"}, 2)
    assert "".join(called) == "baabba"


def test_views_print_the_ratio_of_each_way(capsys: Output) -> None:
    views.run(views.Settings(images=2, rounds=1))
    assert capsys.readouterr().out.count("1.00 times as fast") == len(views.VIEWS)


def test_a_shared_extraction_compares_the_bytes_of_both_ways(
    tmp_path: Path, capsys: Output
) -> None:
    (tmp_path / "class").mkdir()
    write_images(tmp_path / "class", 2)
    shared_extraction.run(shared_extraction.Settings(data=tmp_path, networks=2, rounds=1))
    assert "equal, byte for byte" in capsys.readouterr().out
