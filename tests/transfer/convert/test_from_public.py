"""Every public layout gives back the weights it was made from; everything else is refused."""

import pickle
from argparse import Namespace
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor

from tests.transfer.convert.naming import (
    Weights,
    another,
    below,
    detectron2_names,
    linear,
    numbered,
    refuse,
)
from transfer.backbone import BackboneError, inspect_file, load_backbone
from transfer.convert.from_public import convert
from transfer.convert.read_file import read_file

GetWeights = Callable[..., Weights]


Layout = Callable[[Weights, Weights], Any]
"""(backbone, other network of the same shape) -> what the project saves."""

LAYOUTS: dict[str, tuple[str, str, Layout]] = {
    # test id: (layout told, prefix told, content of the file)
    "torchvision": (
        "torchvision or timm",
        "",
        lambda w, _: {**w, **linear("fc", 1000, 512)},
    ),
    "bare": ("bare torchvision", "", lambda w, _: w),
    "moco": (
        "MoCo",
        "state_dict.module.encoder_q.",
        lambda w, o: {
            "epoch": 200,
            "arch": "resnet18",
            "state_dict": {
                **below("module.encoder_q.", w),
                **linear("module.encoder_q.fc.0", 512, 512),
                **below("module.encoder_k.", o),
                **linear("module.encoder_k.fc.0", 512, 512),
                "module.queue": torch.ones(128, 64),
                "module.queue_ptr": torch.zeros(1, dtype=torch.int64),
            },
            "optimizer": {"state": {0: {"momentum_buffer": torch.ones(3)}}, "param_groups": []},
        },
    ),
    "moco with the momentum encoder first": (
        "MoCo",
        "state_dict.module.encoder_q.",
        lambda w, o: {
            "state_dict": {**below("module.encoder_k.", o), **below("module.encoder_q.", w)}
        },
    ),
    "moco v3": (
        "MoCo v3",
        "state_dict.module.base_encoder.",
        lambda w, o: {
            "state_dict": {
                **below("module.base_encoder.", w),
                **linear("module.base_encoder.fc.0", 64, 512),
                **below("module.momentum_encoder.", o),
                **linear("module.predictor.0", 64, 64),
            }
        },
    ),
    "simsiam": (
        "SimSiam",
        "state_dict.module.encoder.",
        lambda w, _: {
            "state_dict": {
                **below("module.encoder.", w),
                **linear("module.encoder.fc.0", 64, 512),
                **linear("module.predictor.0", 64, 64),
            }
        },
    ),
    "swav": (
        "SwAV",
        "module.",
        lambda w, _: {
            **below("module.", w),
            **linear("module.projection_head.0", 64, 512),
            "module.prototypes.weight": torch.ones(30, 64),
        },
    ),
    "dino": (
        "DINO",
        "teacher.backbone.",
        lambda w, o: {
            "student": {**below("module.backbone.", o), **linear("module.head.mlp.0", 64, 512)},
            "teacher": {**below("backbone.", w), **linear("head.mlp.0", 64, 512)},
            "dino_loss": {"center": torch.zeros(1, 64)},
            "args": Namespace(arch="resnet18"),
        },
    ),
    "byol": (
        "BYOL",
        "online_network.encoder.",
        lambda w, o: {
            "online_network": below("encoder.", w),
            "target_network": below("encoder.", o),
        },
    ),
    "byol-pytorch, which names the online network twice": (
        "BYOL",
        "net.",
        lambda w, o: {
            **below("net.", w),
            **below("online_encoder.net.", w),
            **below("target_encoder.net.", o),
        },
    ),
    "barlow twins": (
        "Barlow Twins",
        "model.module.backbone.",
        lambda w, _: {
            "epoch": 300,
            "model": {
                **below("module.backbone.", w),
                "module.projector.0.weight": torch.ones(64, 512),
                "module.bn.running_mean": torch.zeros(64),
            },
        },
    ),
    "solo-learn": (
        "solo-learn",
        "state_dict.backbone.",
        lambda w, o: {
            "pytorch-lightning_version": "2.1.2",
            "state_dict": {
                **below("momentum_backbone.", o),
                **below("backbone.", w),
                **linear("projector.0", 64, 512),
                **linear("classifier", 100, 512),
            },
            "optimizer_states": [{"state": {0: {"exp_avg": torch.ones(2)}}}],
        },
    ),
    "lightly": (
        "lightly",
        "state_dict.backbone.",
        lambda w, o: {
            "state_dict": {
                **below("backbone.", numbered(w)),
                **below("backbone_momentum.", numbered(o)),
                **linear("projection_head.layers.0", 64, 512),
            }
        },
    ),
    "vissl": (
        "VISSL",
        "classy_state_dict.base_model.model.trunk._feature_blocks.",
        lambda w, _: {
            "classy_state_dict": {
                "base_model": {
                    "model": {
                        "trunk": below("_feature_blocks.", w),
                        "heads": linear("0.clf", 64, 512),
                    }
                },
                "optimizer": {"optim": {"state": {0: {"momentum_buffer": torch.ones(2)}}}},
            }
        },
    ),
    "openmmlab": (
        "OpenMMLab",
        "state_dict.backbone.",
        lambda w, _: {"meta": {"epoch": 200}, "state_dict": below("backbone.", w)},
    ),
    "openmmlab moco, which names the query encoder twice": (
        "OpenMMLab MoCo",
        "state_dict.encoder_q.0.",
        lambda w, o: {
            "state_dict": {
                **below("encoder_q.0.", w),
                **below("encoder_k.0.", o),
                **below("backbone.", w),
            }
        },
    ),
    "detectron2": (
        "detectron2",
        "model.",
        lambda w, _: {"model": detectron2_names(w), "matching_heuristics": True},
    ),
    "detectron2 with feature pyramid": (
        "detectron2",
        "model.backbone.bottom_up.",
        lambda w, _: {"model": below("backbone.bottom_up.", detectron2_names(w))},
    ),
    "shortcut instead of downsample": (
        "bare torchvision",
        "",
        lambda w, _: {name.replace("downsample", "shortcut"): t for name, t in w.items()},
    ),
    "a prefix that nobody knows": (
        "unknown",
        "weights.my.own.trunk.",
        lambda w, _: {"weights": below("my.own.trunk.", w)},
    ),
}


@pytest.mark.parametrize("case", LAYOUTS)
def test_each_layout_gives_back_its_weights_and_accounts_for_each_tensor_once(
    case: str, weights: GetWeights, tmp_path: Path
) -> None:
    layout, prefix, make = LAYOUTS[case]
    expected = weights()
    content = make(expected, another(weights()))
    torch.save(content, tmp_path / "file")
    converted = convert(read_file(tmp_path / "file"), tmp_path / "file")
    for name, tensor in expected.items():
        absent = "num_batches" in name and layout == "detectron2"
        wanted = torch.zeros_like(tensor) if absent else tensor
        assert torch.equal(converted.state_dict[name], wanted)
    inspection = converted.inspection
    assert (inspection.layout, inspection.prefix) == (layout, prefix)
    assert inspection.proof is not None
    assert inspection.proof <= 256 * torch.finfo(torch.float32).eps  # twenty layers
    assert sum(group.num_tensors for group in inspection.account) == len(tensors_in(content))
    assert sum(group.num_values for group in inspection.account) == sum(tensors_in(content))


def tensors_in(content: Any) -> list[int]:
    if isinstance(content, Tensor):
        return [content.numel()]
    children = content.values() if isinstance(content, dict) else content
    if not isinstance(content, dict | list):
        return []
    return [size for child in children for size in tensors_in(child)]


def test_a_resnet50_with_its_bottlenecks_is_read_as_well(
    weights: GetWeights, tmp_path: Path
) -> None:
    expected = weights("resnet50")
    arrays = {name: tensor.numpy() for name, tensor in detectron2_names(expected).items()}
    (tmp_path / "r50.pkl").write_bytes(pickle.dumps({"model": arrays, "__author__": "x"}))
    backbone = load_backbone(tmp_path / "r50.pkl")
    assert (backbone.arch, backbone.feature_dim, backbone.input.size_px) == ("resnet50", 2048, 224)
    assert all(torch.equal(backbone.state_dict[n], expected[n]) for n in expected if "num" not in n)


@pytest.mark.parametrize("first_layer", [3, 4])
def test_a_cifar_stem_is_told_by_its_kernel(
    first_layer: int, weights: GetWeights, tmp_path: Path
) -> None:
    expected = weights(stem="cifar")
    torch.save(below("backbone.", numbered(expected, first_layer)), tmp_path / "file")
    backbone = load_backbone(tmp_path / "file")
    assert (backbone.stem, backbone.input.size_px) == ("cifar", 32)
    assert all(torch.equal(backbone.state_dict[name], expected[name]) for name in expected)


def test_a_sequential_network_that_lost_its_relu_is_refused(
    weights: GetWeights, tmp_path: Path
) -> None:
    names = numbered(weights(stem="cifar"), first_layer=2)
    content = {name.replace("downsample", "shortcut"): t for name, t in names.items()}
    torch.save(content, tmp_path / "file")
    with pytest.raises(BackboneError, match="without the ReLU"):
        load_backbone(tmp_path / "file")


def test_safetensors_are_read(weights: GetWeights, tmp_path: Path) -> None:
    expected = weights()
    save_file(below("module.", expected), tmp_path / "file.safetensors")
    backbone = load_backbone(tmp_path / "file.safetensors")
    assert all(torch.equal(backbone.state_dict[name], expected[name]) for name in expected)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_other_precision_is_cast_and_said(
    dtype: torch.dtype, weights: GetWeights, tmp_path: Path
) -> None:
    original = {n: t.to(dtype) if t.ndim else t for n, t in weights().items()}
    torch.save(original, tmp_path / "file")
    backbone = load_backbone(tmp_path / "file")
    assert torch.equal(backbone.state_dict["conv1.weight"], original["conv1.weight"].float())
    assert f"cast to float32 from {dtype}" in inspect_file(tmp_path / "file").notes


def test_detectron2_files_come_with_a_warning_of_what_tensors_cannot_tell(
    weights: GetWeights, tmp_path: Path
) -> None:
    torch.save({"model": detectron2_names(weights())}, tmp_path / "file")
    assert "BGR" in " ".join(inspect_file(tmp_path / "file").notes)


def test_two_networks_without_a_telling_name_are_both_listed(
    weights: GetWeights, tmp_path: Path
) -> None:
    content = {"a": weights(), "b": another(weights())}
    refuse(content, tmp_path / "file", "2 complete ResNets", "a. (resnet18", "b. (resnet18")


def test_a_missing_tensor_is_named_with_the_share_that_is_there(
    weights: GetWeights, tmp_path: Path
) -> None:
    content = below("module.", weights("resnet50"))
    del content["module.layer4.2.conv3.weight"]
    words = ("resnet50", "52 of 53 convolutions", "'module.'", "module.layer4.2.conv3.weight")
    refuse(content, tmp_path / "file", *words)


def test_a_damaged_query_encoder_is_not_replaced_by_its_momentum_copy(
    weights: GetWeights, tmp_path: Path
) -> None:
    content = {**below("encoder_q.", weights()), **below("encoder_k.", another(weights()))}
    del content["encoder_q.layer4.1.bn2.weight"]
    refuse(content, tmp_path / "file", "missing encoder_q.layer4.1.bn2.weight")


def test_a_wrong_shape_is_named_with_both_shapes(weights: GetWeights, tmp_path: Path) -> None:
    content = {**weights(), "layer2.0.conv1.weight": torch.ones(128, 32, 3, 3)}
    words = ("layer2.0.conv1.weight", "(128, 32, 3, 3)", "(128, 64, 3, 3)")
    refuse(content, tmp_path / "file", *words)


@pytest.mark.parametrize("name", ["layer1.0.se.fc1.weight", "layer3.2.conv1.weight", "extra.bias"])
def test_a_tensor_that_no_resnet_has_is_named(
    name: str, weights: GetWeights, tmp_path: Path
) -> None:
    refuse(below("net.", {**weights(), name: torch.ones(4)}), tmp_path / "file", f"net.{name}")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_named(
    value: float, weights: GetWeights, tmp_path: Path
) -> None:
    content = weights()
    content["layer3.0.bn1.bias"] = torch.full((256,), value)
    refuse(below("module.", content), tmp_path / "file", "module.layer3.0.bn1.bias", "256 values")


@pytest.mark.parametrize("content", [{}, [], 3, {"epoch": 3, "state_dict": OrderedDict()}])
def test_a_file_without_tensors_is_refused(content: object, tmp_path: Path) -> None:
    refuse(content, tmp_path / "file", "no tensors")
