"""detectron2's names of a backbone: those of its released models, each once."""

import torch

from transfer.convert.architectures import FEATURE_DIM
from transfer.convert.resnet import tensor_shapes, to_detectron2

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
    found = zip(to_detectron2(tensors, "fpn"), to_detectron2(tensors, "c4"), strict=True)
    assert list(found) == list(NAMES.values())


def test_every_tensor_gets_a_name_of_its_own() -> None:
    for arch in FEATURE_DIM:
        tensors = {name: torch.ones(1) for name in tensor_shapes(arch, "imagenet")}
        assert len(to_detectron2(tensors, "fpn")) == len(tensors), arch
