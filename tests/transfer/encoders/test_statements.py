"""A known variant that a file declares is built; contradictions are refused."""

import time
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torchvision.models import ResNet
from torchvision.transforms.functional import normalize

from tests.transfer.encoders.conftest import another, below, linear, load, numbered, refuse, weights
from transfer.encoders.architectures import Stem
from transfer.encoders.encoder import IMAGENET_MEAN, IMAGENET_STD, InputFormat
from transfer.encoders.opening import open_file
from transfer.encoders.resnets import network_with
from transfer.encoders.stated import MAX_CONFIG, read_statements

SOLO_FLAT = {"encoder": "resnet18", "classifier_lr": 0.1, "exclude_bias_n_norm": False}
SOLO_NESTED = {"backbone": {"name": "resnet18"}, "data": {"num_large_crops": 2}, "method_kwargs": 1}

BUILT: dict[str, tuple[Stem, Stem, dict[str, Any]]] = {
    # case: (stem that the tensors show, stem that is built, what the file says)
    "bolts, both": ("imagenet", "imagenet", {"first_conv": True, "maxpool1": True}),
    "bolts, no pool": ("imagenet", "imagenet-nopool", {"first_conv": True, "maxpool1": False}),
    "bolts, 3x3 and pool": ("cifar", "cifar-maxpool", {"first_conv": False, "maxpool1": True}),
    "bolts, neither": ("cifar", "cifar", {"first_conv": False, "maxpool1": False}),
    "solo-learn, old": ("cifar", "cifar-pad2", SOLO_FLAT),
    "solo-learn": ("cifar", "cifar-pad2", SOLO_NESTED),
    "solo-learn on large images": ("imagenet", "imagenet", SOLO_NESTED),
    "padding by name": ("cifar", "cifar-pad2", {"conv1_padding": 2}),
    "a data set alone": ("cifar", "cifar", {"dataset": "cifar10", "encoder": "resnet18"}),
}


@pytest.mark.parametrize("case", BUILT)
def test_a_stated_stem_is_built(case: str, file: Path) -> None:
    tensors, stem, message = BUILT[case]
    for kind in (dict, Namespace):
        content = {
            "hyper_parameters": kind(**message),
            "state_dict": another(weights(stem=tensors)),
        }
        assert load(content, file).stem == stem


@pytest.mark.parametrize(
    ("version", "head", "stem"),
    [
        ("2.1.2", "projector.0", "cifar-pad2"),
        ("", "projector.0", "cifar"),
        ("2.1.2", "projection_head.0", "cifar"),
    ],
)
def test_solo_learns_own_files_are_told_without_hyper_parameters(
    version: str, head: str, stem: Stem, file: Path
) -> None:
    """Files without settings, known by Lightning's version and part names."""
    tensors = below("backbone.", another(weights(stem="cifar")))
    state_dict = {**tensors, **linear(head, 64, 512), **linear("classifier", 10, 512)}
    lightning = {"pytorch-lightning_version": version} if version else {}
    assert load({"state_dict": state_dict, **lightning}, file).stem == stem


CHANGES: dict[str, Callable[[ResNet], object]] = {
    "bolts, no pool": lambda network: setattr(network, "maxpool", nn.Identity()),
    "bolts, 3x3 and pool": lambda network: setattr(network, "maxpool", nn.MaxPool2d(3, 2, 1)),
    "solo-learn": lambda network: setattr(network.conv1, "padding", (2, 2)),
}
"""Manual changes of torchvision's network that give the variant."""


@pytest.mark.parametrize("case", CHANGES)
def test_a_variant_computes_what_its_own_project_computes(case: str, file: Path) -> None:
    tensors, stem, message = BUILT[case]
    content = {"state_dict": weights(stem=tensors)}
    plain = load(content, file)
    variant = load({**content, "hyper_parameters": message}, file)
    images = torch.randn(2, 3, 40, 40, generator=torch.Generator().manual_seed(0))
    CHANGES[case](by_hand := plain.network())
    assert torch.equal(variant.network()(images), by_hand(images))
    assert not torch.allclose(plain.network()(images), by_hand(images), rtol=1e-2)
    assert variant.sha256 != plain.sha256
    assert f"{stem} stem, as the file says: " in " ".join(open_file(file)[1].notes)


CONTRADICTIONS: dict[str, tuple[dict[str, Any], str]] = {
    "another depth": ({"arch": "resnet50"}, "arch resnet50"),
    "a depth by number": ({"cfg": {"backbone": {"depth": 50}}}, "cfg.backbone.depth 50"),
    "large kernel denied": ({"hparams": {"first_conv": False}}, "hparams.first_conv False"),
    "a cifar stem": ({"args": {"cifar_stem": True}}, "args.cifar_stem True"),
    "output stride": ({"args": Namespace(output_stride=8)}, "args.output_stride 8"),
    "dilation": (
        {"args": {"replace_stride_with_dilation": [False, True, True]}},
        "args.replace_stride_with_dilation",
    ),
    "stages' strides": ({"cfg": {"backbone": {"strides": (1, 2, 2, 1)}}}, "strides"),
    "anti-aliased": ({"arch": "resnetblur18"}, "arch resnetblur18"),
    "timm's anti-aliased": ({"arch": "resnetaa18.a1_in1k"}, "arch resnetaa18"),
    "a dilated body": ({"args": {"model": "fcn_resnet18"}}, "args.model fcn_resnet18"),
    "eps": ({"args": Namespace(bn_eps=1e-3)}, "args.bn_eps 0.001"),
    "eps in a text of openmmlab": (
        {"meta": {"cfg": "model = dict(backbone=dict(norm_cfg=dict(type='BN', eps=1e-3)))"}},
        "meta.cfg.model.backbone.norm_cfg.eps 0.001",
    ),
    "eps by a variable": (
        {"meta": {"config": "cfg = dict(eps=0.001)\nbackbone=dict(norm_cfg=cfg)"}},
        "meta.config.backbone.norm_cfg.eps 0.001",
    ),
    "a text of detectron2": ({"cfg": "MODEL:\n  RESNETS:\n    DEPTH: 50\n"}, "RESNETS.DEPTH 50"),
    "two means": (
        {"args": Namespace(mean=[0.5] * 3, std=[0.5] * 3), "cfg": {"img_mean": [0.4, 0.4, 0.4]}},
        "cfg.img_mean: (0.4, 0.4, 0.4)",
    ),
    "two orders": ({"cfg": {"to_rgb": False, "input": {"format": "RGB"}}}, "input.format: RGB"),
    "a mean of bytes alone": ({"args": {"mean": [123.7, 116.3, 103.5]}}, "args.mean: (123.7"),
    "a std of zero": ({"args": {"mean": [0.5] * 3, "std": [0.0] * 3}}, "args.std: (0.0"),
    "a text of openmmlab": (
        {"meta": {"cfg": "model = dict(backbone=dict(type='ResNet', depth=50), head=dict())"}},
        "meta.cfg.model.backbone.depth 50",
    ),
    "dilations in a text": (
        {"meta": {"cfg": "model = dict(\n backbone=dict(dilations=(1, 1, 2, 4), depth=18))"}},
        "meta.cfg.model.backbone.dilations",
    ),
    "two answers": ({"a": {"maxpool1": True}, "b": {"maxpool1": False}}, "b.maxpool1 False"),
}


def test_contradicting_entry_is_refused_with_advice(file: Path) -> None:
    for message, entry in CONTRADICTIONS.values():
        content = {**message, "state_dict": another(weights())}
        refuse(content, file, entry, "save only its state_dict")


def test_pooling_is_not_stated_where_the_names_show_that_it_is_absent(file: Path) -> None:
    """nn.Sequential numbers its layers; without max-pool the stages begin at 3."""
    content = {"maxpool1": True, "net": numbered(another(weights(stem="cifar")), first_layer=3)}
    refuse(content, file, "maxpool1 True")


@pytest.mark.parametrize("message", [{"style": "caffe"}, {"stride_in_1x1": True}])
def test_a_stride_in_the_1x1_concerns_bottlenecks_only(message: dict[str, Any], file: Path) -> None:
    config = {"cfg": {"backbone": message}}
    assert load({**config, "state_dict": another(weights())}, file).arch == "resnet18"
    refuse({**config, "state_dict": another(weights("resnet50"))}, file, "1x1")


HARMLESS: dict[str, dict[str, Any]] = {
    "method's name": {"arch": "simclr", "model": "moco_v2", "encoder": "f_q"},
    "right": {"args": Namespace(arch="resnet18", output_stride=32, dilation=1, bn_eps=None)},
    "head": {"cfg": {"decode_head": {"dilation": 6}, "teacher": {"output_stride": 8}}},
    "eps of the optimizer": {"args": {"eps": 1e-8}, "optimizer": {"eps": 1e-3}},
    "stages": {"cfg": {"backbone": {"strides": (1, 2, 2, 2), "dilations": (1, 1, 1, 1)}}},
    "no dilation": {"args": {"replace_stride_with_dilation": [False, False, False]}},
    "text": {"meta": {"cfg": "model = dict(backbone=dict(depth=18), head=dict(depth=3))"}},
    "eps of a head": {"meta": {"cfg": "dict(backbone=dict(), head=dict(norm_cfg=dict(eps=1e-3)))"}},
    "scores": {"top1": {"mean": [0.1, 0.2, 0.3], "std": [0.1, 0.1, 0.1]}, "args": {"mean": None}},
    "another network's": {"teacher": {"mean": [0.5, 0.5, 0.5], "std": [0.5, 0.5, 0.5]}},
    "usual images": {
        "meta": {
            "config": "img_norm_cfg = dict(\n    mean=[123.675, 116.28, 103.53],"
            " std=[58.395, 57.12, 57.375], to_rgb=True)"
        }
    },
}


def test_what_does_not_contradict_does_not_refuse(file: Path) -> None:
    for message in HARMLESS.values():
        backbone = load({**message, "state_dict": another(weights())}, file)
        result = backbone.arch, backbone.stem, backbone.input
        assert result == ("resnet18", "imagenet", InputFormat()), message


CAFFE_TEXT = "mean=[103.53, 116.28, 123.675], std=[1.0, 1.0, 1.0], to_rgb=False"
CAFFE = {"PIXEL_MEAN": [103.53, 116.28, 123.675], "PIXEL_STD": [1.0, 1.0, 1.0]}
CAFFE_YAML = "  PIXEL_MEAN:\n  - 103.53\n  - 116.28\n  - 123.675\n  PIXEL_STD: [1.0, 1.0, 1.0]\n"
BYTES_BGR = ((103.53, 116.28, 123.675), (1.0, 1.0, 1.0), 255.0, True)
HALF = (0.5, 0.5, 0.5)

IMAGES: dict[str, tuple[dict[str, Any], tuple[Any, Any, float, bool]]] = {
    # case: (what the file says, (mean and std as the network sees them, scale, channels in BGR))
    "timm": ({"args": Namespace(mean=[*HALF], std=[*HALF])}, (HALF, HALF, 1, False)),
    "timm, one value": ({"args": Namespace(mean=[0.5], std=[0.5])}, (HALF, HALF, 1, False)),
    "printed": ({"t": "Normalize(mean=[.5, .5, .5], std=(1, 1, 1))"}, (HALF, (1,) * 3, 1, False)),
    "openmmlab's text": ({"meta": {"cfg": f"norm = dict({CAFFE_TEXT})"}}, BYTES_BGR),
    "openmmlab's dict": (
        {"meta": {"cfg": {"data_preprocessor": {"mean": [0] * 3, "std": [1] * 3, "to_rgb": True}}}},
        ((0, 0, 0), (1, 1, 1), 255, False),
    ),
    "detectron2's dict": ({"cfg": {"INPUT": {"FORMAT": "BGR"}, "MODEL": CAFFE}}, BYTES_BGR),
    "detectron2's text": ({"cfg": f"INPUT:\n  FORMAT: BGR\nMODEL:\n{CAFFE_YAML}"}, BYTES_BGR),
    "detectron2's tensors": (
        {name.lower(): torch.tensor(value).reshape(3, 1, 1) for name, value in CAFFE.items()},
        BYTES_BGR,
    ),
    "the order alone": (
        {"cfg": {"INPUT": {"FORMAT": "BGR"}}},
        (IMAGENET_MEAN[::-1], IMAGENET_STD[::-1], 1, True),
    ),
}


@pytest.mark.parametrize("case", IMAGES)
def test_the_stated_images_give_the_features_of_the_files_own_network(
    case: str, file: Path
) -> None:
    message, (mean, std, scale, is_bgr) = IMAGES[case]
    backbone = load({**message, "state_dict": weights()}, file)
    images = torch.rand(2, 3, 40, 40, generator=torch.Generator().manual_seed(0))
    theirs = (images.flip(1) if is_bgr else images) * scale
    network = network_with("resnet18", "imagenet", weights())
    expected = network(normalize(theirs, mean, std)).detach()
    result = backbone.network()(normalize(images, backbone.input.mean, backbone.input.std))
    assert torch.allclose(result, expected, rtol=0, atol=1e-4 * float(expected.abs().max()))
    assert "images as the file says: " in " ".join(open_file(file)[1].notes)


def test_hostile_texts_are_searched_in_a_moment() -> None:
    parts = ("mean=[", "9" * 50, "pixel_mean:\n - 1", " ", "dict(", "norm_cfg=dict(", "eps=1")
    started = time.process_time()
    for part in parts:
        text = f"backbone=dict(mean={part * (MAX_CONFIG // len(part) - 9)}"
        read_statements({"cfg": text}, {})
    assert time.process_time() - started < 20  # a search in quadratic time takes an hour


DEPTHS = {
    18: ("torchvision.models.resnet18", "cifar_resnet18"),
    34: ("tv_resnet34",),
    50: ("resnet50", "r50", "RN50w2", "wide_resnet50_2", "timm/resnet50.a1_in1k"),
    101: ("ResNet-101", "resnext101_32x8d"),
    None: ("resnet5", "resnet500", "seresnet50", "vit_small", "simclr"),
}


def test_depths_are_read_from_the_names_in_use() -> None:
    for depth, texts in DEPTHS.items():
        for text in texts:
            result = [s.value for s in read_statements({"arch": text}, {}) if s.kind == "depth"]
            assert result == [depth] * (depth is not None), text


@pytest.mark.parametrize(
    ("stated", "assumed"),
    [
        ({}, "strides, eps, padding and pooling of torchvision's network, RGB, mean and std of"),
        ({"mean": [0.5, 0.5, 0.5]}, "strides, eps, padding and pooling of torchvision's network"),
        ({"maxpool1": False}, "strides, eps of torchvision's network, RGB"),
    ],
)
def test_source_lists_what_the_file_does_not_state(
    stated: dict[str, object], assumed: str, file: Path
) -> None:
    content = {"hyper_parameters": stated, "state_dict": another(weights())}
    source = load(content, file).source
    assert f"; assumed: {assumed}" in source
    assert ("RGB" in source) == ("mean" not in stated)
