"""The readings of the fixed-rate probe, as the papers print them."""

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import transfer.frozen.linear_heads
from transfer.backbone import Backbone
from transfer.cells.departures import departures
from transfer.cells.request import Cell, CellSettings
from transfer.frozen.features import Predictions
from transfer.record import protocol_hash
from transfer.running.folders import Folders
from transfer.running.lock import lock_folder
from transfer.tasks import TASKS
from transfer.tasks.linear_probe import LinearProbe

READINGS = ("in100_linear@jcl", "in100_linear@lorac")


@pytest.mark.parametrize(
    ("key", "rate", "epochs", "decay", "crop_px"),
    [
        ("in100_linear@jcl", 10.0, 100, "step", 224),  # JCL, appendix D
        ("in100_linear@co2", 15.0, 100, "step", 224),  # CO2 states none: as on ImageNet-1k
        ("in100_linear@lorac", 0.1, 100, "cosine", 224),  # LORAC, its own models
        ("in100_linear@lorac-moco", 30.0, 100, "step", 224),  # LORAC, MoCo v2
        ("in100_linear@uniclr", 30.0, 100, "cosine", 224),  # UniCLR, section 4.1
        ("in100_linear@looc", 30.0, 200, "step", 224),  # LooC, appendix C
        ("in1k_linear@jcl", 30.0, 100, "step", 224),  # JCL, section 4.2
        ("in1k_linear@co2", 15.0, 100, "step", 224),  # CO2, appendix A.2
        ("in1k_linear@lorac", 1.2, 100, "cosine", 224),  # LORAC, its own models
        ("in1k_linear@moco", 30.0, 100, "step", 224),  # MoCo
        ("inat1k_linear", 30.0, 100, "step", 224),  # LooC, appendix C
        ("cub200_linear", 30.0, 200, "step", 224),
        ("cifar10_linear", 30.0, 100, "cosine", 32),
        ("cifar100_linear", 30.0, 100, "cosine", 32),
    ],
)
def test_the_readings_are_those_of_the_papers(
    key: str, rate: float, epochs: float, decay: str, crop_px: int
) -> None:
    task = TASKS[key]
    assert isinstance(task, LinearProbe)
    assert (task.learning_rate, task.epochs, task.decay) == (rate, epochs, decay)
    assert task.crop_px == crop_px
    assert (task.batch_size, task.sgd_momentum, task.weight_decay) == (256, 0.9, 0.0)
    assert task.optimizer == "sgd"


def test_uniclr_probes_imagenet_with_lars_at_batch_1024() -> None:
    task = TASKS["in1k_linear@uniclr"]
    assert isinstance(task, LinearProbe)
    assert (task.optimizer, task.batch_size, task.epochs, task.decay) == (
        *("lars", 1024, 90.0, "cosine"),
    )
    assert task.learning_rate == pytest.approx(0.08)
    assert (task.sgd_momentum, task.weight_decay) == (0.9, 0.0)


def test_uniclrs_probe_is_reported_at_a_larger_rate_too() -> None:
    task, larger = TASKS["in1k_linear@uniclr"], TASKS["in1k_linear@uniclr-0.4"]
    assert isinstance(task, LinearProbe)
    assert larger == replace(task, learning_rate=0.4, protocol="uniclr-2022-0.4/1")


def test_imagenet_has_five_readings_with_names_of_their_own() -> None:
    probes = {key: task for key, task in TASKS.items() if key.startswith("in1k_linear@")}
    names = {task.protocol for task in probes.values() if task.by_default}
    five = {"jcl-2020/1", "co2-2021/1", "lorac-2021/1", "uniclr-2022/1", "moco-2020/1"}
    assert names == five | {"uniclr-2022-0.4/1"}


@pytest.mark.parametrize("red", [0.228, 0.229])
def test_a_backbone_of_another_pixel_scale_than_loracs_code_is_told(
    red: float, small_backbone: Backbone, settings: CellSettings
) -> None:
    form = replace(small_backbone.input, std=(red, 0.224, 0.225), size_px=224)
    backbone = replace(small_backbone, input=form)
    paper = replace(settings, schedule="paper", features_in="float32")
    cell = Cell(key="in1k_linear@lorac-code", backbone=backbone, seed=0, settings=paper)
    told = "std (0.229, 0.224, 0.225) instead of (0.228, 0.224, 0.225)"
    assert departures(cell) == ([told] if red == 0.229 else [])


def test_the_optimizer_came_later_and_leaves_older_records_their_hash() -> None:
    task = TASKS["cifar10_linear"]
    assert protocol_hash("cifar10_linear", task) == "07878afad36b"  # of the records so far
    assert isinstance(task, LinearProbe)
    assert protocol_hash("cifar10_linear", replace(task, optimizer="lars")) != "07878afad36b"


def test_imagenet_is_tested_on_a_center_crop_of_256_and_cifar_on_whole_images() -> None:
    in100, cifar = TASKS["in100_linear@jcl"], TASKS["cifar10_linear"]
    assert isinstance(in100, LinearProbe)
    assert isinstance(cifar, LinearProbe)
    assert in100.crop_px * (1 + in100.margin_px / 224) == 256
    assert cifar.margin_px == 0


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


def test_peers_have_the_length_and_the_crops_of_the_probe(small_backbone: Backbone) -> None:
    task = probe("in1k_linear@jcl").at_schedule("0.1").for_backbone(small_backbone)
    assert [peer.training() for peer in task.peers] == [
        probe(f"in1k_linear@{reading}").at_schedule("0.1").for_backbone(small_backbone).training()
        for reading in ("uniclr", "lorac-code")
    ]
    assert {peer.shared_pass for peer in task.peers} == {task.shared_pass}


def ran(key: str, backbone: Backbone, folders: Folders) -> Predictions:
    task = probe(key).at_schedule("0.05").for_backbone(backbone)
    folders = replace(folders, work=folders.work / key)
    return task.run(task.prepare(backbone, folders), folders, 0)


@pytest.mark.slow
def test_a_second_reading_finds_its_head_trained_and_it_is_the_same_as_alone(
    small_backbone: Backbone, small_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = Folders(small_data, tmp_path / "cache", tmp_path / "work")
    first, second = (ran(key, small_backbone, folders) for key in READINGS)
    assert not torch.equal(first.scores, second.scores)
    others = replace(folders, cache=tmp_path / "other cache", work=tmp_path / "other work")
    lock_folder = ran(READINGS[1], small_backbone, others)
    assert torch.equal(second.scores, lock_folder.scores)
    assert second.details == lock_folder.details
    monkeypatch.setattr(transfer.frozen.linear_heads, "forward", None)  # nothing is trained
    again = replace(folders, work=tmp_path / "a third settings")
    assert torch.equal(ran(READINGS[0], small_backbone, again).scores, first.scores)


@pytest.mark.slow
def test_where_another_process_trains_the_heads_a_reading_waits_for_them(
    small_backbone: Backbone, small_data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass of its own would take the hours of the one that is under way once more."""
    folders = Folders(small_data, tmp_path / "cache", tmp_path / "work")
    first = ran(READINGS[0], small_backbone, folders)
    (stream,) = (tmp_path / "cache" / "heads").glob("stream-*")
    states = sorted(stream.glob("heads-*.pt"))
    assert len(states) == 2  # with LooC's probe of twice the length
    for state in states:
        state.unlink()
    with ExitStack() as holder:
        holder.enter_context(lock_folder(stream))
        monkeypatch.setattr("time.sleep", lambda _: holder.close())  # it ends in the meantime
        assert torch.equal(ran(READINGS[0], small_backbone, folders).scores, first.scores)
    assert all(state.exists() for state in states)
