"""The three ways of training at several rates end with the same weights."""

from pathlib import Path

import pytest
from PIL import Image

from benchmarks.speed import bench_rates


@pytest.fixture
def photographs(tmp_path: Path) -> Path:
    """Two classes of two images each."""
    for number, color in enumerate(("red", "green", "blue", "gray")):
        folder = tmp_path / "photographs" / f"n{number % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (60, 50), color).save(folder / f"{color}.jpg")
    return tmp_path / "photographs"


@pytest.mark.slow
def test_all_ways_are_printed_and_their_weights_agree(
    photographs: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bench_rates, "HEAD_RATES", (0.1, 1.0))
    words = ["--photographs", str(photographs), "--steps", "1"]
    assert bench_rates.main([*words, "--crop-px", "32", "--batch-size", "4"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[-1] == "all weights agree in every bit"
    assert sum("times as fast" in line for line in lines) == 3
