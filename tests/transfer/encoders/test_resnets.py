"""Wide and grouped ResNets are told by their shapes and built.

detectron2's names are its own.
"""

from pathlib import Path

import pytest
import torch

from tests.transfer.encoders.conftest import another, load
from transfer.detection.detectron2_engine import to_detectron2
from transfer.detection.engines import build_detector
from transfer.detection.recipe import COCO_FPN, VOC_C4
from transfer.encoders.architectures import FEATURE_DIM, WIDE, Stem, tensor_shapes
from transfer.encoders.encoder import random_backbone
from transfer.encoders.resnets import build_resnet
from transfer.tasks import TASKS

NETWORKS = [*((arch, "imagenet") for arch in FEATURE_DIM), ("resnet18-heads3", "cifar")]


@pytest.mark.parametrize(("arch", "stem"), NETWORKS)
def test_names_and_shapes_are_torchvisions(arch: str, stem: Stem) -> None:
    with torch.device("meta"):
        network = build_resnet(arch, stem)
    expected = [(name, tuple(tensor.shape)) for name, tensor in network.state_dict().items()]
    assert list(tensor_shapes(arch, stem).items()) == expected


SIZES = [
    pytest.param(arch, marks=() if arch == "resnext50_32x4d" else pytest.mark.slow)
    for arch in WIDE
    if arch != "resnet50w4"  # 1.5 GB of weights
]


@pytest.mark.parametrize("arch", SIZES)
def test_a_file_is_read_as_the_network_of_its_shapes(arch: str, file: Path) -> None:
    with torch.device("meta"):
        shapes = build_resnet(arch, "imagenet").state_dict()
    backbone = load({"state_dict": another(shapes)}, file)
    assert (backbone.arch, backbone.feature_dim) == (arch, FEATURE_DIM[arch])


@pytest.mark.parametrize("arch", ["wide_resnet50_2", "resnext50_32x4d", "resnet50w2"])
def test_the_torchvision_engine_builds_them(arch: str) -> None:
    for recipe in (COCO_FPN, VOC_C4):
        with torch.device("meta"):
            detector = build_detector("torchvision", recipe, arch=arch, num_classes=3, norm="BN")
        result = {
            name.removeprefix("backbone."): tuple(tensor.shape)
            for name, tensor in detector.state_dict().items()
            if name.startswith("backbone.")
        }
        assert result == tensor_shapes(arch, "imagenet")


def test_what_an_engine_cannot_build_is_unfit_before_training(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backbone = random_backbone(arch="resnext50_32x4d", stem="imagenet", seed=0)
    task = TASKS["coco_det"]
    monkeypatch.setattr("transfer.detection.engines.is_available", lambda: True)
    assert "--engine torchvision" in task.unsupported_reason(backbone)
    monkeypatch.setattr("transfer.detection.engines.is_available", lambda: False)
    assert task.unsupported_reason(backbone) == ""
    assert "resnext50_32x4d" in TASKS["voc12_seg_fcn"].unsupported_reason(backbone)


NAMES = {  # torchvision: (with a feature pyramid, without)
    "conv1.weight": ("backbone.bottom_up.stem.conv1.weight", "backbone.stem.conv1.weight"),
    "bn1.running_var": (
        "backbone.bottom_up.stem.conv1.norm.running_var",
        "backbone.stem.conv1.norm.running_var",
    ),
    "layer1.0.downsample.1.bias": (
        "backbone.bottom_up.res2.0.shortcut.norm.bias",
        "backbone.res2.0.shortcut.norm.bias",
    ),
    "layer4.2.bn3.weight": (
        "backbone.bottom_up.res5.2.conv3.norm.weight",
        "roi_heads.res5.2.conv3.norm.weight",
    ),
}


def test_names_are_those_of_detectron2s_released_models() -> None:
    tensors = {name: torch.ones(1) for name in NAMES}
    result = zip(to_detectron2(tensors, "fpn"), to_detectron2(tensors, "c4"), strict=True)
    assert list(result) == list(NAMES.values())


def test_every_tensor_gets_a_name_of_its_own() -> None:
    for arch in FEATURE_DIM:
        tensors = {name: torch.ones(1) for name in tensor_shapes(arch, "imagenet")}
        assert len(to_detectron2(tensors, "fpn")) == len(tensors), arch
