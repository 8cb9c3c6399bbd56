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


def test_a_network_that_reads_colors_draws_every_mask_in_the_size_of_its_image(
    tmp_path: Path,
) -> None:
    split = drawn_split(tmp_path)
    with Image.open(tmp_path / "1.png") as image:
        image.crop((3, 0, 50, 31)).save(tmp_path / "1.png")
    folder = tmp_path / "predictions"
    network = color_reader().train()
    predict(network, split, folder, ALONE)
    assert sorted(file.name for file in folder.iterdir()) == [f"{i}.png" for i in range(4)]
    for i in range(4):
        expected = split.mask(1)[:31, 3:50] if i == 1 else split.mask(i)
        assert np.array_equal(read_mask(prediction_path(folder, split, i)), expected)
    assert not network.training
    with Image.open(folder / "2.png") as found:
        assert found.mode == "P"
        assert bytes(found.getpalette() or [])[:9] == voc_palette()[:9]


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
