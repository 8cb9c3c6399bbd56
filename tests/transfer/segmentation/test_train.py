"""Steps of the optimizer are those of the recipe."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pretrain.running.processes import Process
from tests.transfer.segmentation.drawn_split import drawn_split
from transfer.finetuning.loop import train
from transfer.segmentation.recipe import VOC_FCN
from transfer.segmentation.samples import training_samples
from transfer.segmentation.train import training

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
    samples = training_samples(split, recipe, 0)
    train([training(network, recipe, tmp_path)], samples, seed=0, process=ALONE)
    for start, end in zip(before, network.parameters(), strict=True):
        first = 1 + 0.25 * start
        second = 0.5 * first + 1 + 0.25 * (start - 0.1 * first)
        torch.testing.assert_close(end.detach(), start - 0.1 * first - 0.01 * second)
