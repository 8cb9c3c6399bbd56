"""Every public layout gives back the weights it was made from.

Everything else is refused.
"""

import pickle
from argparse import Namespace
from collections import OrderedDict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor

from tests.transfer.encoders.conftest import (
    Weights,
    another,
    below,
    detectron2_names,
    linear,
    load,
    numbered,
    refuse,
    weights,
)
from tests.transfer.encoders.plain_resnet import plain_features
from transfer.encoders.architectures import Stem
from transfer.encoders.opening import load_backbone, open_file
from transfer.encoders.verify import fixed_images


class Layout(NamedTuple):
    """How a project saves a checkpoint."""

    name: str
    """Name of the project in the report."""
    own: str
    """Keys that lead to the backbone, joined by slashes.

    The last one is a prefix.
    """
    beside: Mapping[str, Any] = {}
    """Further entries of the file."""
    other: str = ""
    """Keys that lead to another network of the same shapes."""
    rename: Callable[[Weights], Weights] = dict


def head(name: str) -> Weights:
    return linear(name, 64, 512)


def detectron2(weights: Weights) -> Weights:
    """Rename the tensors as detectron2 does, which has no step counters."""
    return detectron2_names({n: t for n, t in weights.items() if not n.endswith("tracked")})


def shortcut(weights: Weights) -> Weights:
    return {name.replace("downsample", "shortcut"): tensor for name, tensor in weights.items()}


ONES = torch.ones(3)
MOMENTUM = {"state": {0: {"momentum_buffer": ONES}}, "param_groups": []}
LAYOUTS = {
    "torchvision": Layout("torchvision or timm", "", linear("fc", 1000, 512)),
    "bare": Layout("bare torchvision", ""),
    "moco": Layout(
        "MoCo",
        "state_dict/module.encoder_q.",
        {
            "state_dict": {**head("module.encoder_q.fc.0"), "module.queue": ONES},
            "optimizer": MOMENTUM,
        },
        "state_dict/module.encoder_k.",
    ),
    "moco v3": Layout(
        "MoCo v3",
        "state_dict/module.base_encoder.",
        {"state_dict": {**head("module.base_encoder.fc.0"), **head("module.predictor.0")}},
        "state_dict/module.momentum_encoder.",
    ),
    "simsiam": Layout(
        "SimSiam",
        "state_dict/module.encoder.",
        {"state_dict": {**head("module.encoder.fc.0"), **head("module.predictor.0")}},
    ),
    "swav": Layout(
        "SwAV",
        "module.",
        {**head("module.projection_head.0"), "module.prototypes.weight": ONES},
    ),
    "dino": Layout(
        "DINO",
        "teacher/backbone.",
        {
            "teacher": head("head.mlp.0"),
            "student": head("module.head.mlp.0"),
            "dino_loss": {"center": ONES},
            "args": Namespace(arch="resnet18"),
        },
        "student/module.backbone.",
    ),
    "byol": Layout("BYOL", "online_network/encoder.", other="target_network/encoder."),
    "barlow twins": Layout(
        "Barlow Twins",
        "model/module.backbone.",
        {"model": {"module.projector.0.weight": ONES, "module.bn.running_mean": ONES}},
    ),
    "vicreg": Layout("VICReg", "model/module.backbone.", {"model": head("module.projector.0")}),
    "solo-learn": Layout(
        "solo-learn",
        "state_dict/backbone.",
        {
            "state_dict": {**head("projector.0"), **head("classifier")},
            "optimizer_states": [{"state": {0: {"exp_avg": ONES}}}],
        },
        "state_dict/momentum_backbone.",
    ),
    "lightly": Layout(
        "lightly",
        "state_dict/backbone.",
        {"state_dict": head("projection_head.layers.0")},
        "state_dict/backbone_momentum.",
        numbered,
    ),
    "vissl": Layout(
        "VISSL",
        "classy_state_dict/base_model/model/trunk/_feature_blocks.",
        {"classy_state_dict": {"heads": head("0.clf"), "optimizer": {"optim": MOMENTUM}}},
    ),
    "openmmlab": Layout("OpenMMLab", "state_dict/backbone.", {"meta": {"epoch": 200}}),
    "detectron2": Layout("detectron2", "model/", {"matching_heuristics": True}, rename=detectron2),
    "detectron2 with feature pyramid": Layout(
        "detectron2", "model/backbone.bottom_up.", rename=detectron2
    ),
    "shortcut instead of downsample": Layout("bare torchvision", "", rename=shortcut),
    "pixpro": Layout(
        "PixPro",
        "model/module.encoder.",
        {"model": {"module.projector.linear1.weight": ONES, "module.value_transform.bias": ONES}},
        "model/module.encoder_k.",
    ),
    "simclr of sthalles": Layout(
        "SimCLR of sthalles", "state_dict/backbone.", {"state_dict": head("backbone.fc.0")}
    ),
    "a prefix that nobody knows": Layout("unknown", "weights/my.own.trunk."),
}


def add(content: dict[str, Any], location: str, weights: Weights) -> None:
    *keys, prefix = location.split("/")
    for key in keys:
        content = content.setdefault(key, {})
    content |= below(prefix, weights)


@pytest.mark.parametrize("case", LAYOUTS)
def test_each_layout_accounts_for_every_tensor(case: str, file: Path) -> None:
    layout, expected = LAYOUTS[case], weights()
    content = {key: dict(v) if isinstance(v, dict) else v for key, v in layout.beside.items()}
    if layout.other:  # it stands first, which must not matter
        add(content, layout.other, layout.rename(another(expected)))
    add(content, layout.own, layout.rename(expected))
    torch.save(content, file)
    encoder, inspection = open_file(file)
    state_dict = encoder.state_dict
    for name, tensor in expected.items():
        absent = "num_batches" in name and layout.name == "detectron2"
        assert torch.equal(state_dict[name], torch.zeros_like(tensor) if absent else tensor)
    assert (inspection.layout, inspection.prefix) == (layout.name, layout.own.replace("/", "."))
    assert inspection.kinds.total() == len(tensors_in(content))


@pytest.mark.parametrize(
    ("arch", "stem", "rename"),
    [
        *(("resnet18", "imagenet", rename) for rename in (dict, shortcut, numbered, detectron2)),
        ("resnet50", "imagenet", detectron2),
        ("resnet18", "cifar", dict),
    ],
)
def test_plain_functions_give_the_same_features(
    arch: str, stem: Stem, rename: Callable[[Weights], Weights], file: Path
) -> None:
    raw, images = rename(weights(arch, stem=stem)), fixed_images()
    with torch.inference_mode():
        features, expected = load(raw, file).network()(images), plain_features(raw, images)
    # float32, up to 53 layers
    error = (features - expected).abs().max() / expected.abs().max()
    assert error <= 256 * torch.finfo(torch.float32).eps


@pytest.mark.parametrize(
    ("names", "layout"),
    [
        (("net.", "online_encoder.net."), "BYOL"),  # byol-pytorch
        (("encoder_q.0.", "backbone."), "OpenMMLab MoCo"),
    ],
)
def test_a_network_under_two_names_is_taken_once(
    names: tuple[str, str], layout: str, file: Path
) -> None:
    content = {**below(names[0], weights()), **below(names[1], weights())}
    torch.save(content | below("target_encoder.net.", another(weights())), file)
    inspection = open_file(file)[1]
    assert (inspection.layout, inspection.prefix) == (layout, names[0])
    assert load_backbone(file).state_dict["conv1.weight"].equal(weights()["conv1.weight"])


def tensors_in(content: Any) -> list[int]:
    """Return the numbers of values of all tensors in dicts and lists."""
    if isinstance(content, Tensor):
        return [content.numel()]
    children = content.values() if isinstance(content, dict) else content
    if not isinstance(content, dict | list):
        return []
    return [size for child in children for size in tensors_in(child)]


@pytest.mark.parametrize("first_layer", [3, 4])
def test_a_cifar_stem_is_told_by_its_kernel(first_layer: int, file: Path) -> None:
    expected = weights(stem="cifar")
    backbone = load(below("backbone.", numbered(expected, first_layer)), file)
    assert (backbone.stem, backbone.input.size_px) == ("cifar", 32)
    assert all(torch.equal(backbone.state_dict[name], expected[name]) for name in expected)


def test_other_precision_is_cast_and_said(file: Path) -> None:
    original = {n: t.bfloat16() if t.ndim else t for n, t in weights().items()}
    backbone = load(original, file)
    assert torch.equal(backbone.state_dict["conv1.weight"], original["conv1.weight"].float())
    assert "cast to float32 from torch.bfloat16" in open_file(file)[1].notes


def without(name: str, weights: Weights) -> Weights:
    return {key: tensor for key, tensor in weights.items() if key != name}


def plus(name: str, tensor: Tensor) -> Callable[[], Weights]:
    return lambda: {**below("net." * name.startswith("net."), weights()), name: tensor}


REFUSED: dict[str, tuple[Callable[[], Weights], tuple[str, ...]]] = {
    "a missing tensor": (
        lambda: below("module.", without("layer4.2.conv3.weight", weights("resnet50"))),
        ("resnet50", "'module.'", "module.layer4.2.conv3.weight"),
    ),
    "a damaged query encoder beside its momentum copy": (
        lambda: {
            **below("encoder_q.", without("layer4.1.bn2.weight", weights())),
            **below("encoder_k.", another(weights())),
        },
        ("missing encoder_q.layer4.1.bn2.weight",),
    ),
    "a wrong shape": (
        lambda: {**weights(), "layer2.0.conv1.weight": torch.ones(128, 32, 3, 3)},
        ("layer2.0.conv1.weight", "(128, 32, 3, 3)", "(128, 64, 3, 3)"),
    ),
    "a squeeze": (plus("layer1.0.se.fc1.weight", torch.ones(4)), ("layer1.0.se.fc1.weight",)),
    "a third block": (plus("layer3.2.conv1.weight", torch.ones(4)), ("layer3.2.conv1.weight",)),
    "another tensor": (plus("net.extra.bias", torch.ones(4)), ("net.extra.bias",)),
    "NaN": (plus("layer3.0.bn1.bias", torch.full((256,), torch.nan)), ("bn1.bias", "256 values")),
    "a tensor in the stem of detectron2 that is no head": (
        lambda: {**detectron2_names(weights()), "stem.conv2.weight": torch.ones(4)},
        ("stem.conv2.weight",),
    ),
    "a sequential network without its ReLU": (
        lambda: shortcut(numbered(weights(stem="cifar"), first_layer=2)),
        ("lightly's own ResNet for CIFAR", "encoder='my_file.py:build'"),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_complete_resnet_is_refused_with_its_names(case: str, file: Path) -> None:
    make, args = REFUSED[case]
    refuse(make(), file, *args)


@pytest.mark.parametrize("content", [{}, [], 3, {"epoch": 3, "state_dict": OrderedDict()}])
def test_a_file_without_tensors_is_refused(content: object, file: Path) -> None:
    refuse(content, file, "expected weights")


def test_mocos_own_file_for_detectron2_is_read_with_its_head(file: Path) -> None:
    expected = weights()
    renamed = detectron2_names({**expected, **head("fc.0"), **head("fc.2")})
    content = {"model": {name: tensor.numpy() for name, tensor in renamed.items()}}
    file.write_bytes(pickle.dumps({**content, "__author__": "MOCO", "matching_heuristics": True}))
    backbone, inspection = open_file(file)
    assert all(torch.equal(backbone.state_dict[name], expected[name]) for name in expected)
    assert inspection.kinds == {"backbone": len(expected), "head": 4}
    assert "RGB" in inspection.assumed


def test_a_segmentation_network_is_named_with_its_dilations(file: Path) -> None:
    tensors = {**below("backbone.", weights()), "classifier.0.weight": torch.ones(8, 512, 3, 3)}
    torch.save(tensors, file)
    inspection = open_file(file)[1]
    assert inspection.layout == "torchvision's segmentation network"
    assert any("dilated" in note for note in inspection.notes)
