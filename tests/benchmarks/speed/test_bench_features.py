"""The comparison of arithmetics reads the right images and answers."""

from functools import partial
from pathlib import Path

import pytest
import torch
from PIL import Image

from benchmarks.speed.bench_features import (
    Pixels,
    Settings,
    features,
    linear,
    of_photographs,
    run,
    times,
)
from transfer.backbone import Backbone
from transfer.frozen.features import Features


@pytest.fixture
def photographs(tmp_path: Path) -> Path:
    """Three classes of a single image of its own color each."""
    for number, color in enumerate(("red", "green", "blue")):
        folder = tmp_path / "photographs" / f"n{number}"
        folder.mkdir(parents=True)
        Image.new("RGB", (60, 50), color).save(folder / "one.jpg")
    return tmp_path / "photographs"


def test_crops_of_a_photograph_have_its_label(photographs: Path, small_backbone: Backbone) -> None:
    bank, queries = of_photographs(photographs, 2, small_backbone)
    assert (bank.labels.tolist(), queries.labels.tolist()) == ([0, 1, 2], [0, 1, 2, 0, 1, 2])
    flat = queries.batch(0, 6).mean(dim=(2, 3))  # of one color: crops of it are equal
    # but for a gray level: 1 / 255 in units of a std of 0.22
    torch.testing.assert_close(flat[:3], bank.batch(0, 3).mean(dim=(2, 3)), atol=0.02, rtol=0)


def test_ways_are_timed_in_turn_and_the_first_pass_is_not_counted() -> None:
    called = []

    class Named(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            called.append(self.out_features)
            return x

    networks: dict[str, torch.nn.Module] = {"a": Named(1, 1), "b": Named(1, 2)}
    found = times(networks, torch.zeros(1, 3, 2, 2), rounds=2)
    assert [len(spent) for spent in found.values()] == [2, 2]
    assert called == [2, 1, 1, 2, 2, 1]


def test_features_of_parts_are_those_of_the_whole() -> None:
    images = torch.arange(60.0).reshape(5, 3, 2, 2) / 60  # sums of 12 terms of at most 1
    pixels = Pixels([partial(torch.select, images, 0, i) for i in range(5)], torch.arange(5))
    network = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 2), torch.nn.Flatten())
    with torch.no_grad():
        whole = network(images)
    torch.testing.assert_close(features({"a": network}, pixels, 2)["a"].features, whole)


def test_the_linear_classifier_tells_what_can_be_told() -> None:
    bank = Features(torch.eye(3), torch.arange(3))
    queries = Features(torch.eye(3)[[2, 0]] + 0.1, torch.tensor([2, 0]))
    assert linear(bank, queries, Settings(ckpt=Path())).argmax(dim=1).tolist() == [2, 0]


def test_shares_of_changed_answers_are_told_for_both_classifiers(
    photographs: Path, checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run(Settings(ckpt=checkpoint, photographs=photographs, views=1, rounds=1))
    said = capsys.readouterr().out
    assert said.count("% of 3 answers change") == 2
