"""Steps of the optimizer are those of the recipe, and a few images can be learned by heart."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from pretrain.running.processes import Process
from tests.transfer.segmentation.drawn_split import drawn_split
from transfer.backbone import random_backbone
from transfer.convert.resnet import load_into_mmseg
from transfer.datasets.segmented import read_mask
from transfer.segmentation.iou import confusion, overlap
from transfer.segmentation.network import build_network
from transfer.segmentation.recipe import VOC_FCN
from transfer.segmentation.train import predict, prediction_path, train

ALONE = Process(device=torch.device("cpu"))
SHORT = replace(VOC_FCN.tiny(), crop_px=49, iterations=6, milestones=(4,))


class Sum(nn.Module):
    """A stand-in for loss and network: each parameter's gradient is 1."""

    def __init__(self) -> None:
        super().__init__()
        self.backbone = nn.Sequential(nn.Conv2d(2, 2, 1), nn.BatchNorm2d(2))
        self.head = nn.Conv2d(2, 3, 1)

    def forward(self, samples: object) -> dict[str, Tensor]:
        """Return the sum of all parameters as the loss."""
        return {"loss": torch.stack([parameter.sum() for parameter in self.parameters()]).sum()}


def test_every_parameter_takes_the_recipes_steps_with_momentum_and_decay(tmp_path: Path) -> None:
    network: Any = Sum()
    before = [parameter.detach().clone() for parameter in network.parameters()]
    recipe = replace(SHORT, iterations=2, milestones=(1,), learning_rate=0.1)
    recipe = replace(recipe, sgd_momentum=0.5, weight_decay=0.25)
    split = drawn_split(tmp_path)
    train(network, split, recipe, seed=0, folder=tmp_path, process=ALONE)
    for start, end in zip(before, network.parameters(), strict=True):
        first = 1 + 0.25 * start
        second = 0.5 * first + 1 + 0.25 * (start - 0.1 * first)
        torch.testing.assert_close(end.detach(), start - 0.1 * first - 0.01 * second)


@pytest.mark.slow  # mmsegmentation takes seconds to import
def test_four_images_are_learned_by_heart(tmp_path: Path) -> None:
    split = drawn_split(tmp_path)
    recipe = replace(SHORT, iterations=40, milestones=(35,), learning_rate=0.05, scales=(1.0, 1.0))
    torch.manual_seed(0)
    network = build_network(SHORT, arch="resnet18", num_classes=3, norm="BN", log=tmp_path / "log")
    backbone = random_backbone(arch="resnet18", stem="imagenet", seed=0)
    load_into_mmseg(network.backbone, backbone.state_dict)
    train(network, split, recipe, seed=0, folder=tmp_path, process=ALONE)
    predict(network, split, tmp_path / "predictions", ALONE)
    counts = np.zeros((3, 3), dtype=np.int64)
    for i in range(len(split)):
        guess = read_mask(prediction_path(tmp_path / "predictions", split, i))
        counts += confusion(guess, split.mask(i), 3)
    assert overlap(counts).mean > 50  # background alone gives 23
