"""A few images can be learned by heart, and an interruption changes nothing."""

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
from transfer.datasets.segmented import Segmented, read_mask
from transfer.finetuning.schedule import Precision
from transfer.segmentation.iou import confusion, overlap
from transfer.segmentation.network import FCN, build_network, load_backbone
from transfer.segmentation.recipe import VOC_FCN
from transfer.segmentation.train import predict, prediction_path, train

slow = pytest.mark.slow  # mmsegmentation takes seconds to import
ALONE = Process(device=torch.device("cpu"))
SHORT = replace(VOC_FCN.tiny(), crop_px=49, iterations=6, milestones=(4,))


def network_for(folder: Path) -> FCN:
    torch.manual_seed(0)
    network = build_network(SHORT, arch="resnet18", num_classes=3, norm="BN", log=folder / "log")
    backbone = random_backbone(arch="resnet18", stem="imagenet", seed=0)
    load_backbone(network, backbone.state_dict)
    return network


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
    train(network, split, recipe, seed=0, folder=tmp_path, process=ALONE, num_workers=0)
    for start, end in zip(before, network.parameters(), strict=True):
        first = 1 + 0.25 * start
        second = 0.5 * first + 1 + 0.25 * (start - 0.1 * first)
        torch.testing.assert_close(end.detach(), start - 0.1 * first - 0.01 * second)


@slow
def test_four_images_are_learned_by_heart(tmp_path: Path) -> None:
    split = drawn_split(tmp_path)
    recipe = replace(SHORT, iterations=40, milestones=(35,), learning_rate=0.05, scales=(1.0, 1.0))
    network = network_for(tmp_path)
    train(network, split, recipe, seed=0, folder=tmp_path, process=ALONE, num_workers=0)
    predict(network, split, tmp_path / "predictions", ALONE)
    counts = np.zeros((3, 3), dtype=np.int64)
    for i in range(len(split)):
        guess = read_mask(prediction_path(tmp_path / "predictions", split, i))
        counts += confusion(guess, split.mask(i), 3)
    assert overlap(counts).mean > 50  # background alone gives 23


def two_steps(
    folder: Path, split: Segmented, precision: Precision, device: str
) -> tuple[FCN, float]:
    """The network after them, with its predictions in the folder, and their mean loss."""
    process = Process(device=torch.device(device))
    recipe = replace(SHORT, iterations=2, milestones=(), precision=precision)
    network = network_for(folder)
    done = train(network, split, recipe, seed=1, folder=folder, process=process, num_workers=0)
    predict(network, split, folder / "predictions", process)
    return network, done.losses["loss_seg"]


@slow
@pytest.mark.parametrize(
    ("device", "precision"),
    [
        ("cpu", "bfloat16"),
        pytest.param("cuda:0", "float32", marks=pytest.mark.gpu),
        pytest.param("cuda:0", "bfloat16", marks=pytest.mark.gpu),
    ],
)
def test_other_devices_and_precisions_stay_near_a_cpus_float32(
    device: str, precision: Precision, tmp_path: Path
) -> None:
    split = drawn_split(tmp_path)
    _, expected = two_steps(tmp_path / "float32", split, "float32", "cpu")
    network, loss = two_steps(tmp_path / "other", split, precision, device)
    # half an eps for each convolution, to both sides, moves logits of about one; the cross entropy
    # moves no more than its largest logit
    num_layers = sum(isinstance(module, nn.Conv2d) for module in network.modules())
    half_eps = torch.finfo(torch.bfloat16).eps / 2
    assert loss == pytest.approx(expected, abs=num_layers**0.5 * half_eps)
    assert {weight.dtype for weight in network.state_dict().values()} == {torch.float32, torch.long}
    assert {str(weight.device) for weight in network.state_dict().values()} == {device}
    for i in range(len(split)):
        ours, theirs = (
            read_mask(prediction_path(tmp_path / name / "predictions", split, i))
            for name in ("other", "float32")
        )
        assert np.mean(ours == theirs) > 0.9
