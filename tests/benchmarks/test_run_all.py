"""run_all skips finished work, reports failures and continues."""

import json
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any
from unittest.mock import DEFAULT, Mock

import pytest
import torch

import benchmarks.run_all
import transfer.cells.job
from benchmarks.execution.local import run_jobs
from benchmarks.planning.options import RunAll
from benchmarks.planning.plan import PlannedCell, plan_cell, render_plan, render_plan_groups
from benchmarks.run_all import main, run
from pretrain.running.processes import assume_gpus
from tests.conftest import own_file
from transfer.cells import state
from transfer.cells.cell import Cell
from transfer.cells.checked_data import fingerprint
from transfer.cells.execution import evaluate
from transfer.cells.job import KilledError
from transfer.cells.request import Settings
from transfer.cells.state import read_states
from transfer.datasets.folders import FolderError
from transfer.datasets.synthetic.generate import generate
from transfer.encoders.encoder import Encoder, random_backbone
from transfer.finetuning.options import TrainingOptions
from transfer.hours import Measured
from transfer.record import Record, read_record, write_json_record

Request = Callable[..., RunAll]


def plan(request: RunAll) -> list[PlannedCell]:
    return benchmarks.run_all.plan(request)[0]


@pytest.fixture
def request_for(checkpoint: Path, settings: Settings) -> Request:
    """Requests on one small checkpoint at the smoke schedule."""
    request = RunAll(
        ckpt=(checkpoint,),
        settings=settings,
        tasks="cifar10_knn,in100_knn",
    )
    return partial(replace, request)


def test_checkpoint_becomes_records_and_tables_once(
    request_for: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = request_for()
    assert run(request) == 0
    records = sorted(request.settings.results.glob("records/mine/*.seed0.json"))
    assert [path.name.split(".")[0] for path in records] == ["cifar10_knn", "in100_knn"]
    assert "mine" in (request.settings.results / "tables" / "overview.md").read_text()
    monkeypatch.delattr(transfer.cells.job, "evaluate_on_gpus")
    assert run(request_for()) == 0
    assert {row.state for row in plan(request_for())} == {"cached"}


def test_a_missing_file_of_one_data_set_leaves_the_other_cells(
    request_for: Request, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    data = settings.results.parent / "data"
    generate(data, keys=("cifar10", "cifar100"))
    request = request_for(settings=replace(settings, data=data), tasks="cifar10_knn,cifar100_knn")
    assert run(replace(request, tasks="cifar10_knn")) == 0
    missing = data / "cifar-10-batches-py" / "batches.meta"
    missing.unlink()
    assert [row.state for row in plan(request)] == ["missing data", "run"]
    assert run(request) == 0
    assert f"cifar10_knn: CIFAR-10, split trainval: {missing} is missing" in capsys.readouterr().err
    assert {row.state for row in plan(replace(request, tasks="cifar100_knn"))} == {"cached"}


def test_data_that_are_gone_at_the_end_leave_results_and_reasons(
    request_for: Request, settings: Settings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    generate(tmp_path / "data", keys=("cifar10",))
    settings = replace(settings, data=tmp_path / "data")

    def evaluate_first(cell: Cell) -> Record:
        if cell.seed == 0:
            return evaluate(cell)
        (tmp_path / "data" / "cifar-10-batches-py" / "batches.meta").unlink()
        raise KilledError(-9)

    monkeypatch.setattr(transfer.cells.job, "evaluate_on_gpus", evaluate_first)
    assert run(request_for(settings=settings, tasks="cifar10_knn", seeds="0,1")) == 1
    first, second = read_states(settings.results)
    assert (first.name, second.name) == ("done", "failed")
    assert "SIGKILL" in second.reason
    assert "| mine " in (settings.results / "tables" / "overview.md").read_text()
    assert (settings.results / "report" / "index.html").exists()


@pytest.mark.parametrize("workers", [1, 2])
def test_checkpoint_overwritten_after_the_plan_is_not_evaluated(
    request_for: Request,
    checkpoint: Path,
    other_checkpoint: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    workers: int,
) -> None:
    def overwrite_and_run(*args: Any) -> None:
        shutil.copy(other_checkpoint, checkpoint)
        run_jobs(*args)

    monkeypatch.setattr(benchmarks.run_all, "run_jobs", overwrite_and_run)
    request = request_for(tasks="cifar10_knn", workers=workers)
    assert run(request) == 1
    (stored,) = read_states(request.settings.results)
    assert stored.name == "failed"
    assert "the file has changed since the plan" in stored.reason
    assert "changed since the plan" in " ".join(capsys.readouterr().out.split())
    assert run(request) == 0  # evaluates the present file


def test_record_of_other_data_is_no_result_of_a_killed_run(
    request_for: Request,
    settings: Settings,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    generate(tmp_path / "data", keys=("cifar10",))
    request = request_for(settings=replace(settings, data=tmp_path / "data"), tasks="cifar10_knn")
    assert run(request) == 0
    (file,) = settings.results.glob("records/mine/cifar10_knn*.seed0.json")
    record = read_record(file)
    other_data = {"cifar10": record.data["cifar10"] | {"fingerprint": "other"}}
    write_json_record(file, replace(record, data=other_data))
    capsys.readouterr()

    def die(cell: Cell) -> Record:
        fingerprint.cache_clear()  # as the evaluation of another cell does
        (tmp_path / "data" / "cifar-10-batches-py" / "batches.meta").unlink()
        raise KilledError(-9)

    monkeypatch.setattr(transfer.cells.job, "evaluate_on_gpus", die)
    assert run(request) == 1
    assert [item.name for item in read_states(settings.results)] == ["failed"]
    assert "cannot be read now" not in capsys.readouterr().err


def two_runs(backbone: Encoder, folder: Path) -> list[Path]:
    """Write two files backbone.pt with different weights."""
    second = random_backbone(arch="resnet18", stem="imagenet", seed=1, input=backbone.input)
    paths = [folder / run / "backbone.pt" for run in ("run1", "run2")]
    for path, network in zip(paths, (backbone, second), strict=True):
        path.parent.mkdir()
        own_file(network, {}, path)
    return paths


def test_files_of_one_name_are_rows_of_their_runs(
    request_for: Request, small_backbone: Encoder, tmp_path: Path
) -> None:
    for path in two_runs(small_backbone, tmp_path):
        assert run(request_for(ckpt=(path,), tasks="cifar10_knn")) == 0
    table = (tmp_path / "results" / "tables" / "overview.md").read_text()
    assert "| run1 " in table
    assert "| run2 " in table


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"plan": True},
        {"workers": 2},
        {"tasks": "in100_knn"},
    ],
)
def test_records_of_other_weights_are_not_replaced(
    request_for: Request, small_backbone: Encoder, tmp_path: Path, changes: dict[str, Any]
) -> None:
    first, second = two_runs(small_backbone, tmp_path)
    request = request_for(ckpt=(first,), name=("mine",), tasks="cifar10_knn")
    assert run(request) == 0
    (path,) = request.settings.results.glob("records/mine/*.seed0.json")
    previous = path.read_bytes()
    with pytest.raises(ValueError, match=r"records/mine has records of other weights.*--name"):
        run(replace(request, ckpt=(second,), **changes))
    assert path.read_bytes() == previous
    assert {row.state for row in plan(request)} == {"cached"}


def test_the_last_screen_shows_the_records_of_what_was_asked(
    request_for: Request, settings: Settings, capsys: pytest.CaptureFixture[str]
) -> None:
    exact, rounded = (
        request_for(tasks="cifar10_knn", settings=replace(settings, features_in=precision))
        for precision in ("float32", "bfloat16")
    )
    assert run(exact) == run(rounded) == 0
    records = [
        p for p in exact.settings.results.glob("records/mine/*.json") if "state" not in p.name
    ]
    newest = max(records, key=lambda path: path.stat().st_mtime_ns)
    record = read_record(newest)
    write_json_record(newest, replace(record, metrics={**record.metrics, "top1": 12.34}))
    for request, output in ((exact, False), (rounded, True)):
        capsys.readouterr()
        assert run(request) == 0
        assert (" 12.3 " in capsys.readouterr().out) == output


OWN_ENCODER = """
from torch import nn

INPUT = {"size_px": 32, "mean": (0.5, 0.5, 0.5), "std": (0.25, 0.25, 0.25)}


def build():
    return nn.Sequential(nn.Conv2d(3, 8, 4, 4), nn.ReLU(), nn.Conv2d(8, 6, 2, 2))
"""


def test_a_users_encoder_has_its_rows_and_detection_says_why_not(
    request_for: Request, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, checkpoint = tmp_path / "mine.py", tmp_path / "own.pth"
    file.write_text(OWN_ENCODER)
    scope: dict[str, Any] = {}
    exec(OWN_ENCODER, scope)
    torch.save({"state_dict": scope["build"]().state_dict()}, checkpoint)
    args = f"--encoder {file}:build --pool mean --ckpt {checkpoint} --schedule smoke".split()
    args += ["--data", str(request_for().settings.data), "--results", str(tmp_path / "results")]
    args += ["--runs", str(tmp_path / "runs"), "--tasks", "cifar10_knn,coco_det"]
    assert main([*args, "--plan"]) == 0
    assert "four stages of a ResNet" in capsys.readouterr().out
    assert main(args) == 0
    (path,) = (tmp_path / "results" / "records").rglob("*.seed0.json")
    record = json.loads(path.read_text())
    assert record["task"] == "cifar10_knn"


def test_failing_cell_leaves_its_reason_and_the_others(
    request_for: Request, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = RuntimeError("the disk is on fire")
    evaluating = Mock(wraps=lambda cell, **_: evaluate(cell), side_effect=[broken, DEFAULT])
    monkeypatch.setattr(transfer.cells.job, "evaluate_on_gpus", evaluating)
    request = request_for()
    assert run(request) == 1
    assert len(list(request.settings.results.glob("records/mine/in100_knn.*.seed0.json"))) == 1
    assert "the disk is on fire" in state.failure(plan(request)[0].cell)
    assert (
        "the disk is on fire" in (request.settings.results / "tables" / "overview.md").read_text()
    )


def test_full_disk_for_one_record_keeps_the_other_cells(
    request_for: Request, fill_disk: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    request = request_for()
    fill_disk("cifar10_knn")
    assert run(request) == 1
    assert len(list(request.settings.results.glob("records/mine/in100_knn.*.seed0.json"))) == 1
    assert (request.settings.results / "tables" / "overview.md").exists()
    path = next(row.cell.path for row in plan(request) if row.cell.key == "cifar10_knn")
    output = capsys.readouterr().err
    assert f"cifar10_knn  failed: {path}: " in output
    (
        request.settings.results / "tables" / "overview.md"
    ).unlink()  # pages that are right are not written
    fill_disk(str(request.settings.results))
    assert run(request) == 1
    assert "the tables are not up to date: " in capsys.readouterr().err
    # a folder that cannot be made is told before any work
    link = request.settings.results.with_name("link")
    link.symlink_to("gone")
    with pytest.raises(FolderError, match=r"link: cannot be written.*another --results"):
        run(request_for(settings=replace(request.settings, results=link)))


def test_the_plan_tells_engine_hours_and_what_no_detector_fits(
    small_backbone: Encoder, small_data: Path, settings: Settings
) -> None:
    options = TrainingOptions(engine="torchvision", gpus=4)
    paper = replace(settings, data=small_data, schedule="paper", training=options)
    cifar = random_backbone(arch="resnet18", stem="cifar", seed=0)
    rows = [
        plan_cell(
            Cell.with_backbone(task="coco_det", backbone=backbone, seed=0, settings=paper),
            Measured(),
        )
        for backbone in (random_backbone(arch="resnet50", stem="imagenet", seed=0), cifar)
    ]
    assert [row.state for row in rows] == ["run", "unsupported"]
    # 90,000 iterations of 0.21 s on eight GPUs
    assert rows[0].gpu_hours == pytest.approx(90_000 * 0.21 * 8 / 3600, rel=0.01)
    output = render_plan(rows)
    assert "10.5 hours on 4 GPUs" in output
    assert "the torchvision engine, as requested" in output
    assert "the torchvision engine, as requested" in render_plan_groups(rows)
    assert "the cifar stem has a smaller stride" in output


def test_a_cell_beside_others_is_planned_for_the_gpus_that_it_will_have(
    request_for: Request, checkpoint: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = f"--ckpt {checkpoint} --tasks coco_det --engine torchvision --schedule smoke --plan full"
    args += f" --data {request_for().settings.data} --workers 2"
    for options, output in (("--images-per-gpu 2", "hours on 1 GPU;"), ("--gpus 2", "on 2 GPUs;")):
        with assume_gpus(8):
            assert main(f"{args} {options}".split()) == 0
        assert output in capsys.readouterr().out
    with assume_gpus(8):
        assert main(f"{args} --gpus 16".split()) == 2


@pytest.mark.parametrize(
    ("gpus", "line"), [(0, "networks: this machine has no GPU"), (1, "networks are limited by")]
)
def test_a_plan_says_what_limits_frozen_networks(
    gpus: int, line: str, request_for: Request
) -> None:
    with assume_gpus(gpus):
        assert f"frozen {line}" in render_plan_groups(plan(request_for()))


def test_frozen_cells_use_all_gpus_of_a_machine_in_a_process_each(
    request_for: Request, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two processes on the CPU stand in for those of two GPUs."""
    monkeypatch.setattr("benchmarks.execution.local.visible_gpus", lambda: ["0", "1"])
    request = request_for(ckpt=(checkpoint,), tasks="cifar10_knn,cifar100_knn")
    with assume_gpus(2):
        assert run(request) == 0
    settings = request.settings
    processes = {item.content["pid"] for item in read_states(settings.results)}
    assert len(processes) == 2
    assert os.getpid() not in processes


def test_heads_of_a_loocpp_file_are_rows_of_their_own(
    request_for: Request, four_heads: Path
) -> None:
    request = request_for(ckpt=(four_heads,), tasks="in100_linear@looc", heads=("0", "0,2"))
    rows = plan(request)
    result = [(row.cell.backbone.name, row.cell.backbone.arch) for row in rows]
    assert result == [
        ("loocpp", "resnet18-heads4"),
        ("loocpp-heads0", "resnet18"),
        ("loocpp-heads0+2", "resnet18-heads2"),
    ]
    assert len({row.cell.path for row in rows}) == 3
    assert [row.cell.request.checkpoint.heads for row in rows] == [(), (0,), (0, 2)]
    seeded = plan(replace(request, seeds="0,1,2", random=True, heads=()))
    assert len({row.cell.path for row in seeded}) == len(seeded) == 2 * 3
    elsewhere = plan(replace(request, workers=2))
    assert [row.cell.path for row in elsewhere] == [row.cell.path for row in rows]
    assert not any(row.cell.backbone.state_dict for row in elsewhere)


def test_plan_shows_grid_and_missing_lists(
    small_backbone: Encoder, only: Callable[..., Path], settings: Settings
) -> None:
    paper = replace(settings, data=only("in1k"), schedule="paper")
    keys = ("in1k_semi_10pct@lorac", "in1k_semi_10pct@co2")
    cells = [
        Cell.with_backbone(task=key, backbone=small_backbone, seed=0, settings=paper)
        for key in keys
    ]
    rows = [plan_cell(cell, Measured()) for cell in cells]
    # forward and backward of 32 px images: a search on four fifths for each of seven rates
    cost = 0.44 * (32 / 224) ** 2 / 2500 / 3600
    expected = cost * (3 * 50 * 128_116.7 * (1 + 7 * 0.8) + 50_000)
    assert rows[0].gpu_hours == pytest.approx(expected, rel=0.01)
    assert rows[0].gpu_hours / rows[1].gpu_hours == pytest.approx(6.6 * 50 / 20, rel=0.01)
    output = render_plan(rows)
    assert "7 learning rates are compared" in output
    assert "the published lists are missing" in output
    assert "lorac-2021-drawn/1" in output


def test_a_demo_whose_pre_training_fails_ends_with_1(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transfer.datasets.synthetic.generate.generate", Mock())
    monkeypatch.setattr("subprocess.run", Mock(return_value=CompletedProcess((), 1)))
    assert main(["--demo", "--runs", str(tmp_path)]) == 1


REFUSED = {
    "--tasks nosuch": "nosuch",
    "--suite nosuch": "nosuch",
    "--seeds 0,0": "once",
    "--name ../outside": "--name '../outside' is not a valid name of a row",
    "--name tables": "--name 'tables' is not a valid name of a row",
    "--heads 0,4": "heads 0 to 3",
    "--ckpt CKPT CKPT": "two rows are named 'loocpp'. Pass a different --name",
    "--ckpt CKPT CKPT --name a a": "two rows are named 'a'. Pass a different --name",
    "--demo": "--demo cannot be combined with --ckpt",
    "--exclude-nodes a": "--slurm",
    "--batch-size 8": "--batch-size",
    "--learning-rates 0.1": "--learning-rates",
    "--skip cifar10_knn,in100_knn": "no task remains",
    "--skip coco_det": "coco_det",
    "--slurm --workers 2": "--parallel",
    "--pool cls": "--encoder",
    "--tasks coco_det --cache-crops": "--cache-crops",
    "--tasks cifar10_view_statistics --cache-crops": "--cache-crops",
    "--tasks voc12_seg_fcn --engine torchvision": "--engine",
    "--image-cache-gb 2": "--image-cache-gb",
    "--tasks coco_det --feature-precision bfloat16": "--feature-precision",
    "--checkpoint-key student teacher": "2 given for 1",
    "--random": "records/random has records of other weights",
    "--trained-with moco/in1k-r50-v3": "nearest are moco/in1k-r50-v",
    "--snapshots nowhere --seeds 0,1": "--snapshots cannot be combined with --ckpt, --seeds",
    "--cancel": "--status, --watch, --cancel or --retry-failed cannot be combined with --ckpt",
}


def test_a_wrong_request_is_refused_by_its_option_before_any_work(
    four_heads: Path, small_data: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    second = tmp_path / "results" / "records" / "random" / "cifar10_knn.json"
    second.parent.mkdir(parents=True)
    stored = {"arch": "resnet18-heads4", "stem": "imagenet", "sha256": "a"}
    second.write_text(json.dumps({"backbone": stored}))
    args = ["--ckpt", four_heads, "--data", small_data, "--runs", tmp_path / "runs"]
    args += ["--results", tmp_path / "results", "--tasks", "cifar10_knn,in100_knn", "--plan"]
    wrong = []
    for inputs, fact in REFUSED.items():
        status = main([*map(str, args), *inputs.replace("CKPT", str(four_heads)).split()])
        if status != 2 or fact not in capsys.readouterr().err:
            wrong.append(inputs)
    assert wrong == []
