"""Every test image in four positions, each told as what it is."""

from pathlib import Path

import torch

from transfer.backbone import Backbone
from transfer.datasets.catalog import open_split
from transfer.frozen.features import Predictions
from transfer.frozen.network import frozen_network
from transfer.frozen.transforms import EvalTransform, rotate_quarters
from transfer.running.folders import Folders
from transfer.tasks.rotation import RotationProbe

TASK = RotationProbe(crop_px=32)


def test_features_of_a_position_are_those_of_the_turned_image(
    small_backbone: Backbone, small_data: Path, tmp_path: Path
) -> None:
    test = TASK.prepare(small_backbone, Folders(small_data, tmp_path, tmp_path)).test
    images = open_split("in100", small_data, "test")
    assert test.labels.tolist() == [0] * 160 + [1] * 160 + [2] * 160 + [3] * 160
    whole = EvalTransform(resize_px=37, crop_px=32)
    picture = whole.pixels(images[7][0])
    network = frozen_network(small_backbone)
    for quarters in range(4):
        seen = EvalTransform(resize_px=32, crop_px=32)(
            rotate_quarters(picture, quarters), small_backbone.input
        )
        expected = network(seen[None].contiguous(memory_format=torch.channels_last))[0]
        found = test.features[160 * quarters + 7]
        # twenty layers in float32, alone and in a batch: 512 eps of the largest feature
        atol = 512 * torch.finfo(torch.float32).eps * float(expected.max())
        torch.testing.assert_close(found, expected, rtol=0, atol=atol)


def test_the_picture_is_the_turned_image_of_the_surest_mistake(
    small_data: Path, tmp_path: Path
) -> None:
    images = open_split("in100", small_data, "test")
    scores = torch.rand(4 * len(images), 4, generator=torch.Generator().manual_seed(0))
    labels = torch.arange(4).repeat_interleave(len(images))
    leads = [float(max(row) - row[turns]) for row, turns in zip(scores, labels, strict=True)]
    worst = max(range(len(scores)), key=lambda i: leads[i])
    folders = Folders(small_data, tmp_path, tmp_path)
    tile = TASK.gallery(Predictions(scores, labels), folders)[0]
    assert tile.name == images.name(worst % len(images))
    guess = 90 * int(scores[worst].argmax())
    assert tile.caption == f"turned by {90 * (worst // len(images))}°, taken for {guess}°"
