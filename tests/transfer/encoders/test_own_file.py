"""A backbone file is read as written, and deviations are refused."""

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torchvision

from tests.conftest import own_file
from transfer.encoders.architectures import BackboneError
from transfer.encoders.encoder import (
    Encoder,
    InputFormat,
    default_name,
    random_backbone,
    with_heads,
)
from transfer.encoders.opening import load_backbone, open_file
from transfer.encoders.report import render
from transfer.encoders.resnets import build_resnet

MADE_BY: dict[str, object] = {"method": "jcl", "epochs": 3, "versions": {"a": "1"}}


@pytest.fixture(scope="module")
def cifar() -> Encoder:
    form = InputFormat(mean=(0.1, 0.2, 0.3), size_px=32)
    return random_backbone(arch="resnet18", stem="cifar", seed=1, input=form)


def test_our_own_file_comes_back_as_written(cifar: Encoder, tmp_path: Path) -> None:
    file = own_file(cifar, MADE_BY, tmp_path / "jcl.pt")
    backbone = load_backbone(file)
    assert (backbone.name, backbone.arch, backbone.stem) == ("jcl", "resnet18", "cifar")
    assert (backbone.input, backbone.made_by) == (cifar.input, MADE_BY)
    assert backbone.state_dict.keys() == cifar.state_dict.keys()
    assert all(torch.equal(backbone.state_dict[n], t) for n, t in cifar.state_dict.items())
    assert backbone.file_sha256 == hashlib.sha256(file.read_bytes()).hexdigest()


NO_STD = {"mean": [0.0] * 3, "std": [0.0] * 3, "size": 32, "channels": "RGB"}
NAN_STD = {**NO_STD, "std": [0.2, float("nan"), 0.2]}
DEVIATIONS: dict[str, tuple[dict[str, object], str]] = {
    "later format": ({"format": "ssl-backbone/2"}, "ssl-backbone/1"),
    "unknown arch": ({"arch": "resnet51-heads4"}, "expected one of resnet18"),
    "unlikely many heads": ({"arch": "resnet18-heads100"}, "1 to 99 copies of layer4"),
    "heads that are not there": ({"arch": "resnet18-heads2"}, "missing .*layer4.0.0.conv1.weight"),
    "unknown stem": ({"stem": "3x3"}, "imagenet, cifar"),
    "no input": ({"input": None}, "input"),
    "input without mean": ({"input": {"size": 3}}, "mean and std of three floats"),
    "std of zero": ({"input": NO_STD}, "std is .*above 0"),
    "std of NaN": ({"input": NAN_STD}, "std is .*above 0"),
    "mean of 255": (
        {"input": {**NO_STD, "mean": [124.0] * 3, "std": [0.2] * 3}},
        "mean is .*from 0 to 255",
    ),
    "other arch than told": ({"arch": "resnet34"}, "missing .*layer1.2."),
    "other stem than told": ({"stem": "imagenet"}, "conv1.weight .*instead of .64, 3, 7, 7"),
    "another layer": ({"layer5.weight": torch.ones(10, 512)}, "larger network, with .*layer5"),
    "NaN": ({"bn1.bias": torch.full((64,), float("nan"))}, "bn1.bias contains 64 values"),
    "another shape": ({"bn1.bias": torch.ones(63)}, "bn1.bias .63,. instead of .64"),
    "text in place of a tensor": ({"bn1.bias": "text"}, "missing .*bn1.bias"),
}


@pytest.mark.parametrize("name", DEVIATIONS)
def test_a_deviation_from_our_format_is_refused(name: str, cifar: Encoder, tmp_path: Path) -> None:
    changes, args = DEVIATIONS[name]
    content = torch.load(own_file(cifar, MADE_BY, tmp_path / "file"), weights_only=True)
    for key, value in changes.items():
        (content if key in content else content["state_dict"])[key] = value
    torch.save(content, tmp_path / "file")
    with pytest.raises(BackboneError, match=args):
        load_backbone(tmp_path / "file")


def test_the_hash_follows_content_and_nothing_else(cifar: Encoder, tmp_path: Path) -> None:
    weights = cifar.state_dict | {"bn1.bias": torch.full((64,), 1e-30)}
    item = load_backbone(own_file(cifar, MADE_BY, tmp_path / "one"))
    two = load_backbone(own_file(cifar, {}, tmp_path / "two"))
    changed = load_backbone(own_file(replace(cifar, state_dict=weights), {}, tmp_path / "changed"))
    assert item.sha256 == two.sha256 == cifar.sha256
    assert item.file_sha256 != two.file_sha256
    assert changed.sha256 != item.sha256


def test_random_backbone_equals_torchvisions() -> None:
    torch.manual_seed(3)
    reference = torchvision.models.resnet18().state_dict()
    state = torch.get_rng_state()
    item, second = (random_backbone(arch="resnet18", stem="imagenet", seed=s) for s in (3, 4))
    item.network()
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(t, reference[name]) for name, t in item.state_dict.items())
    assert item.sha256 != second.sha256
    assert item.file_sha256 == ""


def test_a_network_is_frozen_and_apart_from_the_stored_weights(cifar: Encoder) -> None:
    network = cifar.network()
    assert not network.training
    assert not any(parameter.requires_grad for parameter in network.parameters())
    previous = cifar.state_dict["conv1.weight"].clone()
    network.conv1.weight.fill_(0)
    assert torch.equal(cifar.state_dict["conv1.weight"], previous)


@pytest.mark.parametrize("heads", [(), (0, 0), (0, 3), (-1,)])
def test_heads_that_are_not_there_are_refused(heads: tuple[int, ...]) -> None:
    backbone = random_backbone(arch="resnet18-heads3", stem="cifar", seed=0)
    with pytest.raises(ValueError, match="it has heads 0 to 2"):
        with_heads(backbone, heads)


def test_report_of_a_third_party_file_has_layout_and_network(tmp_path: Path) -> None:
    weights = build_resnet("resnet18", "imagenet").state_dict()
    content: dict[str, Any] = {f"module.encoder_q.{n}": tensor for n, tensor in weights.items()}
    content["module.queue"] = torch.ones(128, 10)
    torch.save({"epoch": 200, "state_dict": content}, tmp_path / "moco.pth")
    backbone = load_backbone(tmp_path / "moco.pth")
    assert (backbone.input, backbone.made_by) == (InputFormat(), {})
    layout, _, assumed = backbone.source.partition("; assumed: ")
    assert layout == "moco.pth: MoCo layout, prefix state_dict.module.encoder_q."
    assert assumed
    text = render(*open_file(tmp_path / "moco.pth"))
    fields = ["moco.pth", "MoCo layout", "state_dict.module.encoder_q.", "resnet18, imagenet stem"]
    fields += ["512", "224 px", "121 tensors", "backbone 120", "120 of 120", assumed]
    assert [fact for fact in fields if fact not in text] == []


def test_the_report_of_our_own_file_is_short(cifar: Encoder, tmp_path: Path) -> None:
    settings = {f"views.setting_{i}": i for i in range(60)}
    file = own_file(cifar, {**MADE_BY, "settings": settings}, tmp_path / "jcl.pt")
    text = render(*open_file(file))
    assert len(text.splitlines()) == 11
    fields = ["ssl-backbone/1", "resnet18, cifar stem", "512", "32 px", "0.1 0.2 0.3", "0.229"]
    fields += ["120 tensors", "120 of 120", "jcl", "epochs        3", "a 1"]
    assert [fact for fact in fields if fact not in text] == []


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("run1/backbone.pt", "run1"),
        ("run1/encoder.pt", "run1"),
        ("run1/checkpoint.pth", "run1"),
        ("run1/model_best.pth.tar", "run1"),
        ("run1/checkpoints/last.ckpt", "run1"),
        ("vit/pytorch_model.bin", "vit"),
        ("run1/sub/../model.safetensors", "run1"),
        ("run1/checkpoint_0199.pth.tar", "run1-checkpoint_0199"),
        ("run1/snapshots/epoch0010.pt", "run1-epoch0010"),
        ("run1/backbone-head0.pt", "run1-backbone-head0"),
        ("run1/model.pt", "run1"),
        ("run1/checkpoint.tar", "run1"),
        ("run1/eval/training_9999/teacher_checkpoint.pth", "training_9999"),
        ("run1/epoch=9-step=100.ckpt", "run1-epoch=9-step=100"),
        ("run1/0099.pt", "run1-0099"),
        ("run1/jcl.pth", "jcl"),
        ("run1/model_jcl.pth", "model_jcl"),
        ("run1/moco_v2_800ep_pretrain.pth.tar", "moco_v2_800ep_pretrain"),
    ],
)
def test_default_name_says_which_run(file: str, name: str, tmp_path: Path) -> None:
    assert default_name(tmp_path / file) == name


def test_default_name_in_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "mine").mkdir()
    monkeypatch.chdir(tmp_path / "mine")
    assert default_name(Path("backbone.pt")) == "mine"


def test_loaded_backbone_has_the_default_name(small_backbone: Encoder, tmp_path: Path) -> None:
    (tmp_path / "run1").mkdir()
    path = own_file(small_backbone, {}, tmp_path / "run1" / "backbone.pt")
    assert load_backbone(path).name == "run1"
    assert load_backbone(path, name="mine").name == "mine"
