"""Loss, optimizer, and prediction files named after images.

The network classifies pixels by color and needs no mmsegmentation.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from pretrain.running import stop
from pretrain.running.atomic_files import WriteError
from pretrain.running.processes import Process
from tests.transfer.segmentation.drawn_split import COLORS, drawn_split
from transfer.datasets.segmented import IGNORED, Segmented, read_mask, voc_palette
from transfer.segmentation.masks import prediction_path
from transfer.segmentation.network import FCN, pixel_loss
from transfer.segmentation.predict import predict
from transfer.segmentation.recipe import VOC_FCN
from transfer.segmentation.samples import Sample

ALONE = Process(device=torch.device("cpu"))
RECIPE = replace(VOC_FCN.tiny(), crop_px=48)
SIDE = RECIPE.crop_px


class Pass(nn.Module):
    """A stand-in for the backbone, whose only map is the image.

    It keeps what it saw.
    """

    def forward(self, images: Tensor) -> list[Tensor]:
        """images: (n, 3, H, W)."""
        self.seen = images
        return [images]


class Nearest(nn.Module):
    """A stand-in for the head that scores classes by color distance."""

    def __init__(self) -> None:
        super().__init__()
        mean, std = torch.tensor(RECIPE.pixel_mean), torch.tensor(RECIPE.pixel_std)
        self.colors = nn.Parameter((torch.tensor(COLORS) / 255 - mean) / std)

    def forward(self, maps: Sequence[Tensor]) -> Tensor:
        """(n, 3, H, W)."""
        return -(maps[-1][:, None] - self.colors[:, :, None, None]).pow(2).sum(dim=2)


def color_reader() -> FCN:
    """Exact on the images of `drawn_split`."""
    return FCN(Pass(), Nearest(), RECIPE)


def crop(height: int, width: int, label: int = 1) -> Sample:
    """Return an image of one class, in its color."""
    color = torch.tensor(COLORS[label], dtype=torch.uint8)[:, None, None]
    mask = torch.full((height, width), label, dtype=torch.uint8)
    return Sample(image=color.repeat(1, height, width), mask=mask)


def test_the_loss_is_the_logarithm_of_each_classs_share_by_a_slow_loop() -> None:
    logits = torch.randn(2, 4, 3, 5, dtype=torch.float64)
    masks = torch.arange(30, dtype=torch.uint8).reshape(2, 3, 5) % 4
    masks[1, :2] = IGNORED
    total = 0.0
    for n, y, x in torch.cartesian_prod(*map(torch.arange, masks.shape)):
        if masks[n, y, x] != IGNORED:
            scores = logits[n, :, y, x].exp()
            total -= float((scores[int(masks[n, y, x])] / scores.sum()).log())
    assert pixel_loss(logits, masks).item() == pytest.approx(total / masks.numel())


def test_every_parameter_has_the_recipes_rate_momentum_and_decay() -> None:
    network: Any = nn.Sequential(nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2))
    recipe = replace(RECIPE, learning_rate=0.1, sgd_momentum=0.5, weight_decay=0.25)
    (group,) = FCN.optimizer(network, recipe).param_groups
    assert len(group["params"]) == 4
    assert (group["lr"], group["momentum"], group["weight_decay"]) == (0.1, 0.5, 0.25)
    assert (group["dampening"], group["nesterov"]) == (0, False)


def test_small_crops_are_padded_with_the_mean_color() -> None:
    network = color_reader()
    network([crop(SIDE, SIDE), crop(30, 20)])
    whole, filled = network.backbone.seen  # type: ignore[misc]
    assert filled.shape == (3, SIDE, SIDE)
    assert torch.equal(filled[:, :30, :20], whole[:, :30, :20])
    filled[:, :30, :20] = 0
    assert not filled.any()


def test_a_network_that_reads_colors_draws_every_mask_in_the_size_of_its_image(
    tmp_path: Path,
) -> None:
    split = drawn_split(tmp_path)
    with Image.open(tmp_path / "1.png") as image:
        image.crop((3, 0, 50, 31)).save(tmp_path / "1.png")
    folder = tmp_path / "predictions"
    network = color_reader().train()
    predict(network, split, folder, ALONE)
    assert sorted(file.name for file in folder.iterdir()) == [f"{i}.png.png" for i in range(4)]
    for i in range(4):
        expected = split.mask(1)[:31, 3:50] if i == 1 else split.mask(i)
        assert np.array_equal(read_mask(prediction_path(folder, split, i)), expected)
    assert not network.training
    with Image.open(folder / "2.png.png") as result:
        assert result.mode == "P"
        assert bytes(result.getpalette() or [])[:9] == voc_palette()[:9]


def test_images_of_equal_stems_have_masks_of_their_own(tmp_path: Path) -> None:
    split = drawn_split(tmp_path)
    names = ["a/1.png", "b/1.png", "b/1.jpg", "1.png"]
    for i, name in enumerate(names):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        split.source.decode(i).save(tmp_path / name, "PNG")
    masks = [split.masks.name(i) for i in (0, 1, 2, 1)]
    renamed = Segmented(tmp_path, names, masks, split.class_names)
    predict(color_reader(), renamed, tmp_path / "predictions", ALONE)
    for i in range(3):
        result = read_mask(prediction_path(tmp_path / "predictions", renamed, i))
        assert np.array_equal(result, split.mask(i))


def test_a_request_to_stop_ends_it_before_the_next_image(tmp_path: Path) -> None:
    network = color_reader()
    network.backbone.register_forward_hook(lambda *_: stop._received_signals.append(15))
    with pytest.raises(stop.Stopped):
        predict(network, drawn_split(tmp_path), tmp_path / "found", ALONE)
    assert [file.name for file in (tmp_path / "found").iterdir()] == ["0.png.png"]


def test_full_disk_names_the_predicted_mask(
    tmp_path: Path, fill_disk: Callable[[str], None]
) -> None:
    split = drawn_split(tmp_path)
    fill_disk("predictions")
    with pytest.raises(WriteError, match=r"predictions.*\.png.*--runs"):
        predict(color_reader(), split, tmp_path / "predictions", ALONE)
