"""A cell in a process of its own is the cell of the run that it belongs to."""

import errno
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
from benchmarks.planning.checkpoints import checkpoints
from benchmarks.planning.options import RunAll
from benchmarks.planning.plan import PlannedCell
from pretrain.running.lock import BusyError
from transfer.cells import state
from transfer.cells.cell import Cell, open_checkpoint
from transfer.cells.execution import evaluate
from transfer.cells.many_gpus import KilledError
from transfer.cells.request import Request, Settings
from transfer.datasets.synthetic.generate import generate
from transfer.encoders.encoder import random_backbone
from transfer.encoders.opening import load_backbone
from transfer.encoders.options import Checkpoint
from transfer.finetuning.options import TrainingOptions

Output = pytest.CaptureFixture[str]
SPARE = TrainingOptions(
    engine="torchvision", gpus=2, learning_rates=(0.1, 0.2), precision="bfloat16"
)


@pytest.fixture
def cell(checkpoint: Path, settings: Settings) -> Cell:
    return Cell.with_backbone(
        task="cifar10_knn", backbone=load_backbone(checkpoint), seed=3, settings=settings
    )


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
    checkpoint: Path, four_heads: Path, distilled: Path, settings: Settings
) -> None:
    recipe = "moco/in1k-r50-v1"
    branches = {"branch": ("student", "teacher"), "declared": (recipe, "")}
    student, teacher = checkpoints(RunAll(ckpt=(distilled,) * 2, name=("s", "t"), **branches))  # type: ignore[arg-type]
    assert [open_checkpoint(one).stem for one in (student, teacher)] == ["cifar", "imagenet"]
    settings = replace(settings, training=SPARE, features_in="bfloat16", image_memory_gb=0.5)
    settings = replace(settings, keep_crops=True)
    reserved = distilled.with_name("snapshots.pth")  # a name that no row may have
    shutil.copy(checkpoint, reserved)
    for key, asked in (
        ("coco_det", Checkpoint(ckpt=checkpoint, name="a name")),
        ("in100_knn", Checkpoint(ckpt=reserved, name="a name", random=True)),
        ("objectnet13_eval", Checkpoint(ckpt=four_heads, heads=(2, 0))),
        ("objectnet13_eval", Checkpoint(ckpt=four_heads, random=True)),
        ("in100_knn", student),
    ):
        for with_weights in (False, True):
            request = Request(task=key, checkpoint=asked, seed=3, settings=settings)
            cell = Cell.of(replace(request, with_weights=with_weights))
            other = cell_from_arguments(arguments_of(cell))
            assert other.request == cell.request
            assert other.backbone.sha256 == cell.backbone.sha256
            assert other.backbone.made_by == cell.backbone.made_by
            assert other.backbone.declared == (recipe if asked is student else "")


def test_a_wrong_request_exits_with_2_and_a_full_disk_is_one_line(
    cell: Cell, checkpoint: Path, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    assert main(["cifar10_knn", "--ckpt", str(checkpoint.with_name("nothing.pth"))]) == 2
    capsys.readouterr()
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    monkeypatch.setattr(os, "posix_fallocate", Mock(side_effect=full))
    words = arguments_of(cell)
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
    assert not state.failure(cell)
    assert run(cell) == 1
    reason = state.failure(cell)
    assert reason == "OSError: no space left on device"
    assert run(cell) == 0
    assert cell.path.exists()
    assert capsys.readouterr().err.count("waits for another process") == 1


def test_cells_of_a_pass_run_one_after_another_until_one_is_killed(
    cell: Cell, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cells = [cell, cell.asking(task="cifar10_linear")]
    words = list(joined(arguments_of(one) for one in cells))
    for statuses, expected in (((0, 0), 0), ((1, 0), 1), ((0, 1), 1), ((137, 0), 137)):
        run = Mock(side_effect=statuses)
        monkeypatch.setattr(benchmarks.execution.one_cell, "run", run)
        assert main(words) == expected
        keys = [call.args[0].key for call in run.call_args_list]
        assert keys == ["cifar10_knn", "cifar10_linear"][: 1 if expected > 1 else 2]


def test_preparing_for_several_backbones_decodes_once(
    settings: Settings,
    checkpoint: Path,
    four_heads: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    generate(tmp_path / "data", keys=("in1k", "objectnet13"))
    settings = replace(settings, data=tmp_path / "data")
    asked = [Checkpoint(ckpt=checkpoint), Checkpoint(ckpt=four_heads, heads=(1,))]
    backbones = [open_checkpoint(one) for one in asked]
    cells = [
        Cell.with_backbone(task="objectnet13_eval", backbone=b, seed=0, settings=settings)
        for b in backbones
    ]
    planned = tuple(PlannedCell(cell, "run", (), 0.0) for cell in [*cells, cells[0]])
    words = Job(planned, prepares=True).arguments()
    extract = Mock(wraps=transfer.frozen.extraction.extract)
    monkeypatch.setattr(transfer.frozen.extraction, "extract", extract)
    assert main(list(words)) == 0
    assert [len(call.args[0]) for call in extract.call_args_list] == [2]
    assert not any(cell.path.exists() for cell in cells)
