"""detectron2's names of a backbone: all of them, each once, and nothing that has no place."""

import pytest
import torch

from transfer.convert.architectures import FEATURE_DIM
from transfer.convert.resnet import detectron2_name, tensor_shapes, to_detectron2


def test_every_tensor_gets_a_name_of_its_own(subtests: pytest.Subtests) -> None:
    for arch in FEATURE_DIM:
        with subtests.test(arch=arch):
            names = list(tensor_shapes(arch, "imagenet"))
            assert len({detectron2_name(name, "fpn") for name in names}) == len(names)


def test_names_are_those_of_detectron2s_released_models(subtests: pytest.Subtests) -> None:
    for name, fpn, c4 in [
        ("conv1.weight", "backbone.bottom_up.stem.conv1.weight", "backbone.stem.conv1.weight"),
        (
            "bn1.running_var",
            "backbone.bottom_up.stem.conv1.norm.running_var",
            "backbone.stem.conv1.norm.running_var",
        ),
        (
            "layer1.0.downsample.1.bias",
            "backbone.bottom_up.res2.0.shortcut.norm.bias",
            "backbone.res2.0.shortcut.norm.bias",
        ),
        (
            "layer4.2.bn3.weight",
            "backbone.bottom_up.res5.2.conv3.norm.weight",
            "roi_heads.res5.2.conv3.norm.weight",
        ),
    ]:
        with subtests.test(name=name, fpn=fpn, c4=c4):
            assert (detectron2_name(name, "fpn"), detectron2_name(name, "c4")) == (fpn, c4)


def test_a_tensor_without_a_place_is_refused(subtests: pytest.Subtests) -> None:
    for name in [
        "fc.weight",
        "module.conv1.weight",
        "layer5.0.conv1.weight",
        "layer4.0.0.conv1.weight",
        "layer1.0.downsample.2.weight",
        "conv1",
    ]:
        with subtests.test(name=name), pytest.raises(ValueError, match="has no place"):
            to_detectron2({name: torch.ones(1)}, "fpn")
