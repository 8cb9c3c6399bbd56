"""Every public layout gives back the weights it was made from; everything else is refused."""

import pickle
from argparse import Namespace
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
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
from transfer.backbone import inspect_file, load_backbone
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
    "pixpro": (
        "PixPro",
        "model.module.encoder.",
        lambda w, o: {
            "model": {
                **below("module.encoder.", w),
                **below("module.projector.", {"linear1.weight": torch.ones(64, 512, 1, 1)}),
                **below("module.encoder_k.", o),
                "module.value_transform.weight": torch.ones(32, 32, 1, 1),
            }
        },
    ),
    "simclr of sthalles": (
        "SimCLR of sthalles",
        "state_dict.backbone.",
        lambda w, _: {"state_dict": {**below("backbone.", w), **linear("backbone.fc.0", 9, 512)}},
    ),
    "vicreg": (
        "VICReg",
        "model.module.backbone.",
        lambda w, _: {
            "model": {**below("module.backbone.", w), **linear("module.projector.0", 64, 512)}
        },
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
    state_dict, _, inspection = convert(read_file(tmp_path / "file"), tmp_path / "file")
    for name, tensor in expected.items():
        absent = "num_batches" in name and layout == "detectron2"
        wanted = torch.zeros_like(tensor) if absent else tensor
        assert torch.equal(state_dict[name], wanted)
    assert (inspection.layout, inspection.prefix) == (layout, prefix)
    difference = float(inspection.proof.split()[-1].rstrip(")"))
    assert difference <= 256 * torch.finfo(torch.float32).eps  # twenty layers
    assert sum(group.num_tensors for group in inspection.account) == len(tensors_in(content))
    assert sum(group.num_values for group in inspection.account) == sum(tensors_in(content))


def tensors_in(content: Any) -> list[int]:
    if isinstance(content, Tensor):
        return [content.numel()]
    children = content.values() if isinstance(content, dict) else content
    if not isinstance(content, dict | list):
        return []
    return [size for child in children for size in tensors_in(child)]


@pytest.mark.parametrize("first_layer", [3, 4])
def test_a_cifar_stem_is_told_by_its_kernel(
    first_layer: int, weights: GetWeights, tmp_path: Path
) -> None:
    expected = weights(stem="cifar")
    torch.save(below("backbone.", numbered(expected, first_layer)), tmp_path / "file")
    backbone = load_backbone(tmp_path / "file")
    assert (backbone.stem, backbone.input.size_px) == ("cifar", 32)
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


def without(name: str, weights: Weights) -> Weights:
    return {key: tensor for key, tensor in weights.items() if key != name}


def plus(name: str, tensor: Tensor) -> Callable[[GetWeights], Weights]:
    return lambda w: {**below("net." * name.startswith("net."), w()), name: tensor}


REFUSED: dict[str, tuple[Callable[[GetWeights], Weights], tuple[str, ...]]] = {
    "a missing tensor": (
        lambda w: below("module.", without("layer4.2.conv3.weight", w("resnet50"))),
        ("resnet50", "'module.'", "module.layer4.2.conv3.weight"),
    ),
    "a damaged query encoder beside its momentum copy": (
        lambda w: {
            **below("encoder_q.", without("layer4.1.bn2.weight", w())),
            **below("encoder_k.", another(w())),
        },
        ("missing encoder_q.layer4.1.bn2.weight",),
    ),
    "a wrong shape": (
        lambda w: {**w(), "layer2.0.conv1.weight": torch.ones(128, 32, 3, 3)},
        ("layer2.0.conv1.weight", "(128, 32, 3, 3)", "(128, 64, 3, 3)"),
    ),
    "a squeeze": (plus("layer1.0.se.fc1.weight", torch.ones(4)), ("layer1.0.se.fc1.weight",)),
    "a third block": (plus("layer3.2.conv1.weight", torch.ones(4)), ("layer3.2.conv1.weight",)),
    "another tensor": (plus("net.extra.bias", torch.ones(4)), ("net.extra.bias",)),
    "NaN": (plus("layer3.0.bn1.bias", torch.full((256,), torch.nan)), ("bn1.bias", "256 values")),
    "infinity": (plus("layer3.0.bn1.bias", torch.full((256,), torch.inf)), ("256 values",)),
    "a tensor in the stem of detectron2 that is no head": (
        lambda w: {**detectron2_names(w()), "stem.conv2.weight": torch.ones(4)},
        ("stem.conv2.weight",),
    ),
    "a sequential network without its ReLU": (
        lambda w: {
            name.replace("downsample", "shortcut"): tensor
            for name, tensor in numbered(w(stem="cifar"), first_layer=2).items()
        },
        ("no complete ResNet",),
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_complete_resnet_is_refused_with_its_names(
    case: str, weights: GetWeights, tmp_path: Path
) -> None:
    make, words = REFUSED[case]
    refuse(make(weights), tmp_path / "file", *words)


@pytest.mark.parametrize("content", [{}, [], 3, {"epoch": 3, "state_dict": OrderedDict()}])
def test_a_file_without_tensors_is_refused(content: object, tmp_path: Path) -> None:
    refuse(content, tmp_path / "file", "no tensors")


def moco_for_detectron2(checkpoint: Weights) -> dict[str, Any]:
    """Convert by the rules of MoCo's own script, which keeps the head and the step counters."""
    renamed = {}
    for name, tensor in checkpoint.items():
        if not name.startswith("module.encoder_q."):
            continue
        name = name.replace("module.encoder_q.", "")
        if "layer" not in name:
            name = "stem." + name
        for i in (1, 2, 3, 4):
            name = name.replace(f"layer{i}", f"res{i + 1}")
        for i in (1, 2, 3):
            name = name.replace(f"bn{i}", f"conv{i}.norm")
        name = name.replace("downsample.0", "shortcut").replace("downsample.1", "shortcut.norm")
        renamed[name] = tensor.numpy()
    return {"model": renamed, "__author__": "MOCO", "matching_heuristics": True}


MOCO_HEADS = {
    "v1": linear("fc", 128, 512),
    "v2": {**linear("fc.0", 512, 512), **linear("fc.2", 128, 512)},
}


@pytest.mark.parametrize("version", MOCO_HEADS)
def test_mocos_own_file_for_detectron2_is_read_with_its_head(
    version: str, weights: GetWeights, tmp_path: Path
) -> None:
    expected, head = weights(), MOCO_HEADS[version]
    content = moco_for_detectron2(
        {
            **below("module.encoder_q.", {**expected, **head}),
            **below("module.encoder_k.", another(expected)),
        }
    )
    (tmp_path / "moco.pkl").write_bytes(pickle.dumps(content))
    backbone = load_backbone(tmp_path / "moco.pkl")
    assert all(torch.equal(backbone.state_dict[name], expected[name]) for name in expected)
    kinds = {group.kind: group.num_tensors for group in inspect_file(tmp_path / "moco.pkl").account}
    assert kinds == {"backbone": len(expected), "head": len(head)}
    assert "BGR" in " ".join(inspect_file(tmp_path / "moco.pkl").notes)
