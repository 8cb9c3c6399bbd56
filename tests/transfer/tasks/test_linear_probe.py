"""Variants of the linear probe as printed, and the rotation probe."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torchvision.transforms.v2.functional import pil_to_tensor

import transfer.frozen.linear_heads
from transfer.cells.cell import Cell, deviations
from transfer.cells.request import Settings
from transfer.datasets.catalog import open_split
from transfer.datasets.folders import Folders
from transfer.encoders.encoder import Encoder
from transfer.frozen.feature_cache import Predictions
from transfer.frozen.network import forward
from transfer.frozen.transforms import EvalTransform, Normalization
from transfer.tasks import TASKS
from transfer.tasks.linear_probe import LinearProbe, RotationProbe
from transfer.tasks.task import NamedTask


@pytest.mark.parametrize("red", [0.228, 0.229])
def test_a_backbone_of_another_pixel_scale_than_loracs_code_is_told(
    red: float, small_backbone: Encoder, settings: Settings
) -> None:
    form = replace(small_backbone.input, std=(red, 0.224, 0.225), size_px=224)
    backbone = replace(small_backbone, input=form)
    paper = replace(settings, schedule="paper", features_in="float32")
    cell = Cell.with_backbone(
        task="in1k_linear@lorac-code", backbone=backbone, seed=0, settings=paper
    )
    output = "std (0.229, 0.224, 0.225) instead of (0.228, 0.224, 0.225)"
    assert deviations(cell) == ([output] if red == 0.229 else [])


def probe(key: str) -> LinearProbe:
    task = TASKS[key]
    assert isinstance(task, LinearProbe)
    return task


def test_readings_that_see_the_same_crops_are_trained_in_one_pass() -> None:
    jcl = probe("in1k_linear@jcl").together
    assert jcl == ((30.0, "step"), (15.0, "step"), (1.2, "cosine"))  # also MoCo's, CO2's, LORAC's
    for reading in ("co2", "lorac", "moco"):
        assert probe(f"in1k_linear@{reading}").together == jcl
    assert [peer.batch_size for peer in probe("in1k_linear@jcl").peers] == [1024, 2048]
    uniclr = probe("in1k_linear@uniclr").together
    assert uniclr == probe("in1k_linear@uniclr-0.4").together  # by LARS, 90 epochs
    assert [rate for rate, _ in uniclr] == pytest.approx([0.08, 0.4])
    assert probe("in100_linear@looc").together == ((30.0, "step"),)  # 200 epochs
    assert [peer.epochs for peer in probe("in100_linear@looc").peers] == [100]


def test_peers_have_the_length_and_the_crops_of_the_probe(small_backbone: Encoder) -> None:
    task = probe("in1k_linear@jcl").at_schedule("0.1").for_backbone(small_backbone)
    assert [peer.training() for peer in task.peers] == [
        probe(f"in1k_linear@{reading}").at_schedule("0.1").for_backbone(small_backbone).training()
        for reading in ("uniclr", "lorac-code")
    ]
    assert {peer.shared_pass for peer in task.peers} == {task.shared_pass}


def ran(key: str, backbone: Encoder, folders: Folders) -> Predictions:
    task = probe(key).at_schedule("0.05").for_backbone(backbone)
    folders = replace(folders, work=folders.work / key)
    return task.run(task.prepare(backbone, folders), folders, 0)


@pytest.mark.slow
def test_second_variant_uses_the_trained_head(
    small_backbone: Encoder, small_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = Folders(small_data, tmp_path / "cache", tmp_path / "work")
    remaining = replace(folders, cache=tmp_path / "other cache", work=tmp_path / "other work")
    first = ran("in100_linear@jcl", small_backbone, folders)
    single = ran("in100_linear@lorac", small_backbone, remaining)
    monkeypatch.setattr(transfer.frozen.linear_heads, "forward", None)  # nothing is trained
    second = ran("in100_linear@lorac", small_backbone, folders)
    assert not torch.equal(first.scores, second.scores)
    assert torch.equal(second.scores, single.scores)
    assert second.details == single.details


def test_features_of_a_position_are_those_of_the_turned_image(
    small_backbone: Encoder, small_data: Path, tmp_path: Path
) -> None:
    task = RotationProbe(crop_px=32)
    test = task.prepare(small_backbone, Folders(small_data, tmp_path, tmp_path)).test
    assert test.labels.tolist() == [0] * 160 + [1] * 160 + [2] * 160 + [3] * 160
    image = open_split("in100", small_data, "test")[7][0]
    raw = pil_to_tensor(EvalTransform(resize_px=37, crop_px=32).pixels(image))
    turned = torch.stack([raw.rot90(quarters, (1, 2)) for quarters in range(4)])
    normalize = Normalization(small_backbone.input, torch.device("cpu"))
    expected = forward(small_backbone.network(), normalize(turned))
    # twenty layers in float32, alone and in a batch: 512 eps of the largest feature
    atol = 512 * torch.finfo(torch.float32).eps * float(expected.max())
    torch.testing.assert_close(test.features[7::160], expected, rtol=0, atol=atol)


def test_ablation_trains_with_its_learning_rate() -> None:
    task = NamedTask("in1k_linear@jcl", probe("in1k_linear@jcl"))
    second = task.ablation("slow", learning_rate=5.0).task
    assert isinstance(second, LinearProbe)
    assert second.heads == ((5.0, "step"),)
    scores = Predictions(torch.eye(2), torch.arange(2), {})
    assert task.task.metrics(scores) == {"top1": 100.0}
