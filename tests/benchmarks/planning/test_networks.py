"""Checkpoints of several networks share one command."""

from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.planning.checkpoints import backbones, networks, random_initializations
from benchmarks.planning.options import RunAll
from benchmarks.run_all import main
from transfer.encoders.architectures import Stem
from transfer.encoders.encoder import random_backbone
from transfer.encoders.options import Checkpoint, EncoderOptions

FILES = (Path("a.pth"), Path("b.pth"), Path("c.pth"))
VIT = "timm:vit_tiny_patch16_224"
NETWORK = """
from torch import nn

INPUT = {"size_px": 16, "mean": (0.5, 0.5, 0.5), "std": (0.25, 0.25, 0.25)}

def tiny():
    return nn.Sequential(nn.Conv2d(3, 8, 3), nn.AdaptiveAvgPool2d(1), nn.Flatten())
"""


def test_each_checkpoint_has_its_own_options() -> None:
    request = RunAll(
        ckpt=FILES, encoder=(VIT, "", "mine.py:net"), pool=("cls", "", "mean"), input_px=("224",)
    )
    assert networks(request) == [
        EncoderOptions(encoder=VIT, pool="cls", input_px=224),
        EncoderOptions(),
        EncoderOptions(encoder="mine.py:net", pool="mean", input_px=224),
    ]


def test_one_value_holds_for_all_encoders() -> None:
    options = EncoderOptions(encoder=VIT, pool="cls", input_mean=(0.5,) * 3, input_std=(0.5,) * 3)
    norm: dict[str, Any] = {"input_mean": (0.5,) * 3, "input_std": (0.5,) * 3}
    assert networks(RunAll(ckpt=FILES, encoder=(VIT,), pool=("cls",), **norm)) == [options] * 3
    some = RunAll(ckpt=FILES, encoder=(VIT, "", VIT), pool=("cls",), **norm)
    assert networks(some) == [options, EncoderOptions(), options]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"encoder": (VIT, "")}, "2 given for 3 checkpoints"),
        ({"pool": ("cls",)}, "--pool requires --encoder"),
        ({"encoder": (VIT, "", ""), "pool": ("", "cls", "")}, "--pool requires --encoder"),
        ({"encoder": (VIT,), "input_px": ("big",)}, "--input-px big: expected an integer"),
        (
            {"encoder": (VIT, "", "a.py:f"), "input_mean": (0.5,) * 3, "input_std": (0.5,) * 3},
            "apply to one encoder, but 2 are given",
        ),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        networks(RunAll(ckpt=FILES, **options))


def files(folder: Path) -> list[Path]:
    """Write files of three ResNet-18, one with CIFAR stem, and a user's network."""
    paths = [folder / f"{name}.pth" for name in ("first", "second", "cifar", "tiny")]
    stems: list[Stem] = ["imagenet", "imagenet", "cifar"]
    for seed, (stem, path) in enumerate(zip(stems, paths[:3], strict=True), 1):
        torch.save(random_backbone(arch="resnet18", stem=stem, seed=seed).state_dict, path)
    (folder / "net.py").write_text(NETWORK)
    space: dict[str, Any] = {}
    exec(NETWORK, space)
    torch.save(space["tiny"]().state_dict(), paths[3])
    return paths


def test_each_network_has_one_with_random_weights(tmp_path: Path) -> None:
    encoder = ("", "", "", f"{tmp_path / 'net.py'}:tiny")
    request = RunAll(ckpt=tuple(files(tmp_path)), encoder=encoder, random=True, plan=True)
    result, _ = backbones(request)
    names = ["random", "random-resnet18", "random-net-tiny"]
    assert [item.name for item in result.values()] == ["first", "second", "cifar", "tiny", *names]
    twins = [item for item in result.values() if item.name in names]
    assert [(item.arch, item.stem) for item in twins[:2]] == [
        ("resnet18", "imagenet"), ("resnet18", "cifar"),
    ]  # fmt: skip
    assert len({item.sha256 for item in result.values()}) == 7


def test_resnet_and_vit_share_one_command(tmp_path: Path, small_data: Path) -> None:
    _, _, cifar, tiny = files(tmp_path)
    folders = ["--data", small_data, "--results", tmp_path / "out", "--runs", tmp_path / "runs"]
    args = ["--ckpt", tiny, cifar, "--encoder", f"{tmp_path / 'net.py'}:tiny", "", "--random"]
    args += [*folders, "--tasks", "cifar10_knn", "--schedule", "smoke", "--quiet"]
    assert main([str(arg) for arg in args]) == 0
    rows = {path.name for path in (tmp_path / "out" / "records").iterdir()}
    assert rows == {"cifar", "tiny", "random", "random-resnet18"}


def test_twin_of_a_later_network_has_its_own_name(tmp_path: Path) -> None:
    small = random_backbone(arch="resnet18", stem="imagenet", seed=0)
    large = random_backbone(arch="resnet50", stem="imagenet", seed=0)
    checkpoint = Checkpoint(ckpt=tmp_path / "mine.pth")
    (twin,) = random_initializations({checkpoint: small}, tmp_path)
    assert twin.name == "random"
    file = tmp_path / "random" / "cifar10_knn.json"
    file.parent.mkdir()
    file.write_text('{"backbone": {"arch": "resnet18", "stem": "imagenet"}}')
    assert random_initializations({checkpoint: small}, tmp_path)[0].name == "random"
    assert random_initializations({checkpoint: large}, tmp_path)[0].name == "random-resnet50"
