"""The benchmark of views on small images: what it makes and what it prints."""

from pathlib import Path

import numpy as np
import pytest
import torch

from pretrain.bench_views import (
    SETTINGS,
    Benchmark,
    Seconds,
    Setting,
    crops,
    draw,
    main,
    photographs,
    spread,
    usual_pipeline,
    whole_views,
)
from pretrain.data import find_images
from pretrain.parts.view import View
from pretrain.views import ViewRecipe

TWO_SIZES = Setting(
    name="2 x 24 + 3 x 12 px",
    views=(View(),) * 2 + (View(small=True),) * 3,
    recipe=ViewRecipe(size_px=24, small_size_px=12),
)


def test_all_ways_give_views_of_the_same_sizes(tmp_path: Path) -> None:
    images = find_images(photographs(tmp_path, 2))
    expected = [(3, 24, 24)] * 2 + [(3, 12, 12)] * 3
    for file, views in zip(images.files, whole_views(TWO_SIZES, images, 0), strict=True):
        assert [view.shape for view in views] == expected
        assert [view.shape for view in usual_pipeline(TWO_SIZES)(file)] == expected
    cut = next(crops(TWO_SIZES, images, draw(TWO_SIZES, images, 0)))
    assert [image.transpose(2, 0, 1).shape for image in cut] == expected


def test_views_change_with_the_epoch_alone(tmp_path: Path) -> None:
    images = find_images(photographs(tmp_path, 1))
    first, again, later = (next(whole_views(TWO_SIZES, images, epoch)) for epoch in (0, 0, 1))
    assert all(map(torch.equal, first, again))
    assert not any(map(torch.equal, first, later))


def test_ratios_are_those_of_rounds(capsys: pytest.CaptureFixture[str]) -> None:
    seconds = Seconds(usual=[0.1, 0.2, 0.4], whole=[0.05, 0.1, 0.4], crops=[0.02, 0.02, 0.02])
    assert seconds.report() == (
        "torchvision 5 images/s; whole views 10, 2.0x; crops alone 50, 10.0x"
    )


def test_photographs_have_neighbors_that_resemble_each_other(tmp_path: Path) -> None:
    images = find_images(photographs(tmp_path, 3))
    assert set(images.heights) == {375}
    assert set(images.widths) == {500}
    (image,) = crops(TWO_SIZES, spread(images, 1), draw(TWO_SIZES, spread(images, 1), 0))
    luma = image[0].mean(axis=2)
    assert np.corrcoef(luma[:, 1:].ravel(), luma[:, :-1].ravel())[0, 1] > 0.5


@pytest.mark.slow
def test_every_setting_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    main(Benchmark(num_images=1, rounds=1))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(": torchvision")[0] for line in lines[1:]] == [s.name for s in SETTINGS]
