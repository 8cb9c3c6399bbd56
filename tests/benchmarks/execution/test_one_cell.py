"""A cell in a process of its own is the cell of the run that it belongs to."""

import errno
import json
import os
import shutil
from dataclasses import replace
from pathlib import Path
from unittest.mock import DEFAULT, Mock

import pytest
import torch

import benchmarks.execution.one_cell
import transfer.frozen.extraction
from benchmarks.execution.jobs import PREPARE, Job, arguments_of, joined
from benchmarks.execution.one_cell import cell_from_arguments, main, run
from benchmarks.planning.checkpoints import Origin, origins
from benchmarks.planning.options import RunAll
from benchmarks.planning.plan import PlannedCell
from pretrain.running.lock import BusyError
from transfer.cells.execution import evaluate
from transfer.cells.many_gpus import KilledError
from transfer.cells.request import Cell, CellSettings
from transfer.datasets.synthetic.generate import generate
from transfer.encoders.encoder import random_backbone
from transfer.encoders.opening import load_backbone
from transfer.finetuning.options import TrainingOptions
from transfer.record import failure_path

Output = pytest.CaptureFixture[str]
SPARE = TrainingOptions(
    engine="torchvision", gpus=2, learning_rates=(0.1, 0.2), precision="bfloat16"
)


@pytest.fixture
def cell(checkpoint: Path, settings: CellSettings) -> Cell:
    return Cell(key="cifar10_knn", backbone=load_backbone(checkpoint), seed=3, settings=settings)


@pytest.fixture
def distilled(tmp_path: Path) -> Path:
    """A student with a CIFAR stem and a teacher without, in one file."""
    content = {
        "student": random_backbone(arch="resnet18", stem="cifar", seed=0).state_dict,
        "teacher": random_backbone(arch="resnet18", stem="imagenet", seed=0).state_dict,
    }
    torch.save(content, tmp_path / "kd.pth")
    return tmp_path / "kd.pth"


def test_a_cells_words_mean_the_cell(
    checkpoint: Path, four_heads: Path, distilled: Path, settings: CellSettings
) -> None:
    recipe = "moco/in1k-r50-v1"
    branches = {"branch": ("student", "teacher"), "declared": (recipe, "")}
    student, teacher = origins(RunAll(ckpt=(distilled,) * 2, name=("s", "t"), **branches))  # type: ignore[arg-type]
    assert [student.load().stem, teacher.load().stem] == ["cifar", "imagenet"]
    settings = replace(settings, training=SPARE, features_in="bfloat16", image_memory_gb=0.5)
    settings = replace(settings, keep_crops=True)
    reserved = distilled.with_name("snapshots.pth")  # a name that no row may have
    shutil.copy(checkpoint, reserved)
    for key, origin in (
        ("coco_det", Origin(ckpt=checkpoint, name="a name")),
        ("in100_knn", Origin(ckpt=reserved, name="a name", random=True)),
        ("objectnet13_eval", Origin(ckpt=four_heads, heads=(2, 0))),
        ("objectnet13_eval", Origin(ckpt=four_heads, random=True)),
        ("in100_knn", student),
    ):
        backbone = origin.load()
        for with_weights in (False, True):
            cell = Cell(key=key, backbone=backbone, seed=3, settings=settings)
            cell = replace(cell, with_weights=with_weights)
            other = cell_from_arguments(arguments_of(cell, {backbone.name: origin}))
            assert other.backbone.sha256 == backbone.sha256
            assert other.backbone.made_by == backbone.made_by
            assert other.backbone.declared == (recipe if origin is student else "")
            assert replace(other, backbone=backbone) == cell


def test_a_wrong_request_exits_with_2_and_a_full_disk_is_one_line(
    cell: Cell, checkpoint: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    assert main(["cifar10_knn", "--ckpt", str(checkpoint.with_name("nothing.pth"))]) == 2
    capsys.readouterr()
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    monkeypatch.setattr(os, "posix_fallocate", Mock(side_effect=full))
    words = arguments_of(cell, {cell.backbone.name: Origin(ckpt=checkpoint)})
    assert main([PREPARE, "cifar10_knn", *words]) == 1
    (told,) = capsys.readouterr().err.splitlines()
    assert told.startswith(f"failed: {cell.folders.cache}")
    assert "give another --runs" in told


def test_another_process_is_waited_for_and_a_failure_leaves_its_reason_but_no_killed_process(
    cell: Cell, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    busy = [BusyError("another process works on this cell")] * 3
    ends = [KilledError(-9), OSError("no space left on device"), *busy, DEFAULT]
    evaluating = Mock(wraps=evaluate, side_effect=ends)
    monkeypatch.setattr(benchmarks.execution.one_cell, "evaluate_on_gpus", evaluating)
    monkeypatch.setattr(benchmarks.execution.one_cell, "RETRY_INTERVAL_S", 0.0)
    assert run(cell) == 137  # a shell would tell the same status
    assert not failure_path(cell.path).exists()
    assert run(cell) == 1
    reason = json.loads(failure_path(cell.path).read_text())["reason"]
    assert reason == "OSError: no space left on device"
    assert run(cell) == 0
    assert cell.path.exists()
    assert capsys.readouterr().err.count("waits for another process") == 1


def test_cells_of_a_pass_run_one_after_another_until_one_is_killed(
    cell: Cell, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = [cell, replace(cell, key="cifar10_linear")]
    origins = {cell.backbone.name: Origin(ckpt=checkpoint)}
    words = list(joined(arguments_of(one, origins) for one in cells))
    for statuses, expected in (((0, 0), 0), ((1, 0), 1), ((0, 1), 1), ((137, 0), 137)):
        run = Mock(side_effect=statuses)
        monkeypatch.setattr(benchmarks.execution.one_cell, "run", run)
        assert main(words) == expected
        keys = [call.args[0].key for call in run.call_args_list]
        assert keys == ["cifar10_knn", "cifar10_linear"][: 1 if expected > 1 else 2]


def test_preparing_for_several_backbones_decodes_once(
    settings: CellSettings,
    checkpoint: Path,
    four_heads: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    generate(tmp_path / "data", keys=("in1k", "objectnet13"))
    settings = replace(settings, data=tmp_path / "data")
    origins = [Origin(ckpt=checkpoint), Origin(ckpt=four_heads, heads=(1,))]
    backbones = [origin.load() for origin in origins]
    cells = [Cell(key="objectnet13_eval", backbone=b, seed=0, settings=settings) for b in backbones]
    names = [backbone.name for backbone in backbones]
    planned = tuple(PlannedCell(cell, "run", (), 0.0) for cell in [*cells, cells[0]])
    words = Job(planned, prepares=True).arguments(dict(zip(names, origins, strict=True)))
    extract = Mock(wraps=transfer.frozen.extraction.extract)
    monkeypatch.setattr(transfer.frozen.extraction, "extract", extract)
    assert main(list(words)) == 0
    assert [len(call.args[0]) for call in extract.call_args_list] == [2]
    assert not any(cell.path.exists() for cell in cells)
