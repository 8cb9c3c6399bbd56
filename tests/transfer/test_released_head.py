"""A published head gives the logits of the saved network."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from tests.transfer.segmentation.test_linear import head
from transfer.__main__ import main
from transfer.encoders.architectures import BackboneError
from transfer.encoders.encoder import random_backbone
from transfer.released_head import HEAD_NAMES, load_head
from transfer.segmentation.linear import LinearSegmenter
from transfer.segmentation.recipe import DINOV2
from transfer.tasks import TASKS
from transfer.tasks.segmentation import SegmentationLinear


def save_head(path: Path, network: LinearSegmenter) -> None:
    """Save the head as mmsegmentation does, with a step counter."""
    state = network.state_dict()
    tensors = {name: state[ours] for name, ours in HEAD_NAMES.items()}
    counter = {"decode_head.bn.num_batches_tracked": torch.tensor(7)}
    torch.save({"meta": {"epoch": 1}, "state_dict": tensors | counter}, path)


def moved_head(classes: int = 3) -> LinearSegmenter:
    network = head(num_classes=classes)
    generator = torch.Generator().manual_seed(4)
    for name, tensor in network.state_dict().items():
        if tensor.is_floating_point():
            tensor.copy_(torch.rand(tensor.shape, generator=generator) + ("var" in name))
    return network.eval()


def test_loaded_head_gives_the_logits_of_the_saved_one(tmp_path: Path) -> None:
    saved, loaded = moved_head(), head().eval()
    save_head(tmp_path / "head.pth", saved)
    load_head(loaded, tmp_path / "head.pth")
    images = torch.rand(2, 3, 16, 16)
    assert torch.equal(loaded.logits(images), saved.logits(images))


def test_head_of_other_classes_or_layout_is_refused(tmp_path: Path) -> None:
    save_head(tmp_path / "head.pth", moved_head(classes=4))
    with pytest.raises(BackboneError, match=r"conv_seg.weight has the shape \[4, 5, 1, 1\]"):
        load_head(head(), tmp_path / "head.pth")
    torch.save({"state_dict": {"head.weight": torch.ones(3, 5)}}, tmp_path / "other.pth")
    with pytest.raises(BackboneError, match=r"decode_head.bn.weight is missing"):
        load_head(head(), tmp_path / "other.pth")


def test_command_prints_the_mean_iou(
    small_data: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task = TASKS["voc12_seg_linear"]
    assert isinstance(task, SegmentationLinear)
    monkeypatch.setitem(TASKS, "voc12_seg_linear", replace(task, recipe=DINOV2.tiny()))
    backbone = random_backbone(arch="resnet18", stem="imagenet", seed=0)
    torch.save(backbone.state_dict, tmp_path / "mine.pth")
    network = head(num_classes=21)
    network.norm, network.classifier = torch.nn.BatchNorm2d(512), torch.nn.Conv2d(512, 21, 1)
    save_head(tmp_path / "head.pth", network)
    files = ["--ckpt", str(tmp_path / "mine.pth"), "--head", str(tmp_path / "head.pth")]
    assert main(["test-head", *files, "--data", str(small_data)]) == 0
    assert "mine: mIoU " in capsys.readouterr().out
    assert main(["test-head", *files[:2], "--head", files[1], "--data", str(small_data)]) == 2


def test_several_processes_are_refused(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert main(["test-head", "--ckpt", "mine.pth", "--head", "head.pth"]) == 2
    assert "test-head runs in one process" in capsys.readouterr().err
