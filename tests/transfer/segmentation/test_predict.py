"""Predictions are files named after the images, at the images' own size."""

from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from pretrain.running import stop
from pretrain.running.processes import Process
from tests.transfer.segmentation.color_reader import color_reader
from tests.transfer.segmentation.drawn_split import drawn_split
from transfer.datasets.segmented import read_mask, voc_palette
from transfer.segmentation.train import predict, prediction_path

ALONE = Process(device=torch.device("cpu"))


def test_a_network_that_reads_colors_draws_every_mask(tmp_path: Path) -> None:
    split = drawn_split(tmp_path)
    folder = tmp_path / "predictions"
    network = color_reader().train()
    predict(network, split, folder, ALONE)
    assert sorted(file.name for file in folder.iterdir()) == [f"{i}.png" for i in range(4)]
    for i in range(4):
        assert np.array_equal(read_mask(prediction_path(folder, split, i)), split.mask(i))
    assert not network.training


def test_a_prediction_is_a_palette_image_as_vocs_masks_are(tmp_path: Path) -> None:
    predict(color_reader(), drawn_split(tmp_path).subset([2]), tmp_path / "found", ALONE)
    with Image.open(tmp_path / "found" / "2.png") as image:
        assert image.mode == "P"
        assert bytes(image.getpalette() or [])[:9] == voc_palette()[:9]


def test_a_prediction_has_the_size_of_its_image(tmp_path: Path) -> None:
    split = drawn_split(tmp_path)
    with Image.open(tmp_path / "1.png") as image:
        image.crop((3, 0, 50, 31)).save(tmp_path / "1.png")
    predict(color_reader(), split, tmp_path / "found", ALONE)
    found = read_mask(prediction_path(tmp_path / "found", split, 1))
    assert np.array_equal(found, split.mask(1)[:31, 3:50])


def test_a_request_to_stop_ends_it_before_the_next_image(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    signals: list[int] = []
    monkeypatch.setattr(stop, "_asked", signals)
    network = color_reader()
    network.backbone.register_forward_hook(lambda *_: signals.append(15))
    with pytest.raises(stop.Stopped):
        predict(network, drawn_split(tmp_path), tmp_path / "found", ALONE)
    assert [file.name for file in (tmp_path / "found").iterdir()] == ["0.png"]
