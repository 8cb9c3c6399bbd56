"""The benchmark of views on small images: what it makes and what it prints."""

from pathlib import Path

import numpy as np
import pytest

from pretrain.data.feed import FileViews
from pretrain.data.images import find_images, read_pixels
from pretrain.data.views import ViewRecipe
from pretrain.parts.view import View
from pretrain.speed.bench_views import Benchmark, run
from pretrain.speed.view_pipelines import (
    SETTINGS,
    Seconds,
    Setting,
    evenly_spaced,
    make_feed,
    usual_pipeline,
    write_photographs,
)

TWO_SIZES = Setting(
    name="2 x 24 + 3 x 12 px",
    views=(View(),) * 2 + (View(small=True),) * 3,
    recipe=ViewRecipe(size_px=24, small_size_px=12),
)


def test_all_ways_give_views_of_the_same_sizes(tmp_path: Path) -> None:
    images = find_images(write_photographs(tmp_path, 2))
    expected = [(3, 24, 24)] * 2 + [(3, 12, 12)] * 3
    for file in images.files:
        assert [view.shape for view in usual_pipeline(TWO_SIZES)(file)] == expected
    (batch,) = make_feed(TWO_SIZES, images, colors_in_workers=True).batches(0, 1)
    assert [view.shape[1:] for view in batch.views] == expected
    large, small, _ = FileViews(make_feed(TWO_SIZES, images, colors_in_workers=False))[0]
    assert (large.shape, small.shape) == ((4, 24, 24, 3), (6, 12, 12, 3))


def test_ratios_are_those_of_rounds(capsys: pytest.CaptureFixture[str]) -> None:
    seconds = Seconds(usual=[0.1, 0.2, 0.4], whole=[0.05, 0.1, 0.4], crops=[0.02, 0.02, 0.02])
    assert seconds.report() == (
        "torchvision 5 images/s; whole views 10, 2.0x; crops alone 50, 10.0x"
    )


def test_photographs_have_neighbors_that_resemble_each_other(tmp_path: Path) -> None:
    images = find_images(write_photographs(tmp_path, 3))
    assert set(images.heights) == {375}
    assert set(images.widths) == {500}
    luma = read_pixels(evenly_spaced(images, 1).files[0]).numpy().mean(axis=2)
    assert np.corrcoef(luma[:, 1:].ravel(), luma[:, :-1].ravel())[0, 1] > 0.5


@pytest.mark.slow
def test_every_setting_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    run(Benchmark(num_images=1, rounds=1))
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(": torchvision")[0] for line in lines[1:]] == [s.name for s in SETTINGS]
