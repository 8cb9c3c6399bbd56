"""A job in this process, in its own process, or in two."""

import fcntl
import os
import signal
import subprocess
import sys
import time
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import DEFAULT, Mock

import pytest
import torch
from PIL import Image
from torch import nn

import transfer.cells.job
from benchmarks.planning.checkpoints import checkpoints
from benchmarks.planning.options import RunAll
from pretrain.running import stop
from pretrain.running.errors import NotFiniteError
from transfer.cells import state
from transfer.cells.cell import Cell, finished, open_checkpoint
from transfer.cells.execution import evaluate, extract_together
from transfer.cells.job import (
    KilledError,
    checkpoints_that_fit,
    evaluate_on_gpus,
    first_error,
    main,
    read_job,
    run,
    run_worker,
    wait_for_workers,
    write_job,
)
from transfer.cells.request import Request, Settings
from transfer.datasets.expected import DataError
from transfer.encoders.architectures import BackboneError
from transfer.encoders.encoder import Encoder, random_backbone
from transfer.encoders.options import Checkpoint
from transfer.finetuning.options import TrainingOptions
from transfer.frozen.feature_file import UnfinishedRows
from transfer.frozen.network import frozen_network
from transfer.frozen.transforms import EvalTransform
from transfer.tasks import TASKS

TWO = TrainingOptions(gpus=2)
Output = pytest.CaptureFixture[str]


@pytest.fixture
def request_for(checkpoint: Path, settings: Settings) -> Request:
    """Nearest neighbors of a checkpoint file."""
    requested = Checkpoint(ckpt=checkpoint)
    return Request(task="cifar10_knn", checkpoint=requested, seed=3, settings=settings)


@pytest.fixture
def cell(request_for: Request) -> Cell:
    """A detector in two processes."""
    settings = replace(request_for.settings, training=TWO)
    return Cell.of(replace(request_for, task="coco_det", seed=0, settings=settings))


@pytest.fixture
def distilled(tmp_path: Path) -> Path:
    """Write a file with a CIFAR-stem student and an ImageNet-stem teacher."""
    content = {
        "student": random_backbone(arch="resnet18", stem="cifar", seed=0).state_dict,
        "teacher": random_backbone(arch="resnet18", stem="imagenet", seed=0).state_dict,
    }
    torch.save(content, tmp_path / "kd.pth")
    return tmp_path / "kd.pth"


def test_job_file_keeps_the_requests(
    request_for: Request, four_heads: Path, distilled: Path, tmp_path: Path
) -> None:
    recipe, two = "moco/in1k-r50-v1", (distilled,) * 2
    branches = RunAll(ckpt=two, name=("s", "t"), branch=("student", "teacher"))
    student, teacher = checkpoints(replace(branches, declared=(recipe, "")))
    assert [open_checkpoint(item).stem for item in (student, teacher)] == ["cifar", "imagenet"]
    assert open_checkpoint(student).declared == recipe
    spare = TrainingOptions(
        engine="torchvision", gpus=2, learning_rates=(0.1, 0.2), precision="bfloat16"
    )
    settings = replace(request_for.settings, training=spare, image_memory_gb=0.5, keep_crops=True)
    more = Request(
        task="objectnet13_eval",
        checkpoint=Checkpoint(ckpt=four_heads, heads=(2, 0), random=True, name="a name"),
        settings=replace(settings, features_in="bfloat16", tolerate=3),
        with_weights=True,
    )
    withdrawn = replace(request_for.checkpoint, declared="")
    requests = [request_for, more]
    requests += [replace(request_for, checkpoint=requested) for requested in (student, withdrawn)]
    requests += [replace(request_for, task=key) for key in TASKS]
    write_job(tmp_path / "job.json", requests)
    assert read_job(tmp_path / "job.json") == [request.absolute() for request in requests]


def test_failed_cell_leaves_its_reason(
    request_for: Request, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first, second = Cell.of(request_for), Cell.of(replace(request_for, seed=4))
    ends = [OSError("no space left on device"), DEFAULT, KilledError(-9)]
    evaluating = Mock(wraps=lambda cell, **_: evaluate(cell), side_effect=ends)
    monkeypatch.setattr(transfer.cells.job, "evaluate_on_gpus", evaluating)
    assert run([first.request, second.request]) == 1
    assert state.failure(first) == "OSError: no space left on device"
    assert finished(second) is not None
    write_job(tmp_path / "job.json", [first.request])
    assert main([str(tmp_path / "job.json")]) == 137  # a shell would tell the same status
    assert not state.failure(first)


def test_file_that_was_torn_after_the_plan_is_the_reason(
    request_for: Request, checkpoint: Path, capsys: Output
) -> None:
    cell = Cell.of(request_for)
    state.write(cell, "queued")
    checkpoint.write_bytes(b"torn")
    assert run([request_for]) == 1
    assert "BackboneError: " in state.failure(cell)
    assert "cifar10_knn  failed: " in capsys.readouterr().err


def test_cell_of_another_process_is_waited_for(
    request_for: Request, monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    cell = Cell.of(request_for)
    cell.folders.work.mkdir(parents=True)
    second = (cell.folders.work / "lock").open("w")
    fcntl.flock(second, fcntl.LOCK_EX)
    monkeypatch.setattr("pretrain.running.lock.time.sleep", lambda _: second.close())
    assert run([request_for]) == 0
    assert "another process works on cifar10_knn" in capsys.readouterr().err


@pytest.fixture
def two_encoders(request_for: Request, other_checkpoint: Path) -> list[Request]:
    """Nearest neighbors of two checkpoints."""
    second = replace(request_for, checkpoint=Checkpoint(ckpt=other_checkpoint))
    return [request_for, second]


def in_another_folder(request: Request) -> Request:
    results, runs = (f"other-{name}" for name in ("results", "runs"))
    parent = request.settings.runs.parent
    return replace(
        request, settings=replace(request.settings, results=parent / results, runs=parent / runs)
    )


def features_of(request: Request) -> dict[str, bytes]:
    files = (request.settings.runs / "cache" / "features").glob("*.npy")
    return {file.name: file.read_bytes() for file in files}


def test_shared_pass_gives_the_features_of_separate_ones(
    two_encoders: list[Request], monkeypatch: pytest.MonkeyPatch
) -> None:
    pixels, decoded = EvalTransform.pixels, list[Image.Image]()

    def counted(transform: EvalTransform, image: Image.Image) -> Image.Image:
        decoded.append(image)
        return pixels(transform, image)

    monkeypatch.setattr(EvalTransform, "pixels", counted)
    assert run(two_encoders) == 0
    num_together = len(decoded)
    separate = [in_another_folder(request) for request in two_encoders]
    assert [run([request]) for request in separate] == [0, 0]
    assert len(decoded) == 3 * num_together
    assert len(features_of(two_encoders[0])) == 4  # trainval and test of both
    assert features_of(two_encoders[0]) == features_of(separate[0])
    for request, single in zip(two_encoders, separate, strict=True):
        records = finished(Cell.of(request)), finished(Cell.of(single))
        assert all(records)
        assert len({str(record and record.metrics) for record in records}) == 1


def test_an_encoder_that_fails_leaves_the_others_and_its_reason(
    two_encoders: list[Request], monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    mine, broken = map(Cell.of, two_encoders)

    def build(backbone: Encoder) -> nn.Module:
        if backbone.sha256 == broken.backbone.sha256:
            raise torch.OutOfMemoryError("no memory for this one")
        return frozen_network(backbone)

    monkeypatch.setattr("transfer.frozen.extraction.frozen_network", build)
    assert run(two_encoders) == 1
    assert finished(mine) is not None
    assert "no memory for this one" in state.failure(broken)
    output = capsys.readouterr().err
    for split in ("trainval", "test"):
        assert f"joint extraction of {split} failed: no memory for this one" in output


def test_failed_network_leaves_its_memory_to_the_others(
    two_encoders: list[Request], monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = Cell.of(two_encoders[0]).backbone.sha256
    refs: list[weakref.ref[Any]] = []
    alive: list[bool] = []

    class Broken(nn.Module):
        def forward(self, images: torch.Tensor) -> torch.Tensor:
            activations = images + 1
            refs.extend(map(weakref.ref, (self, activations)))
            raise torch.OutOfMemoryError("no memory for this one")

    def build(backbone: Encoder) -> nn.Module:
        return Broken() if backbone.sha256 == broken else frozen_network(backbone)

    def mark(rows: UnfinishedRows, done: int) -> None:
        alive.extend(ref() is not None for ref in refs)

    monkeypatch.setattr("transfer.frozen.extraction.frozen_network", build)
    monkeypatch.setattr("transfer.frozen.extraction.IMAGES_PER_BATCH", 100)  # two per split
    monkeypatch.setattr(UnfinishedRows, "mark", mark)
    extract_together([Cell.of(request) for request in two_encoders])
    assert len(alive) == 6  # two after the first split, four after the second
    assert not any(alive)


def test_states_show_the_progress_of_a_joint_extraction(
    two_encoders: list[Request], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pretrain.running.console.CALLBACK_INTERVAL_S", 0.0)
    observed: list[str] = []

    def evaluated(cell: Cell) -> int:
        observed.extend(item.name for item in state.read_states(cell.settings.results))
        return 0

    def mark(rows: UnfinishedRows, done: int) -> None:
        states = state.read_states(two_encoders[0].settings.results)
        observed.extend(f"{item.name} {item.reason[:13]}" for item in states)

    monkeypatch.setattr(UnfinishedRows, "mark", mark)
    monkeypatch.setattr(transfer.cells.job, "_run_cell", evaluated)
    assert run(two_encoders) == 0
    assert set(observed[:2]) == {"running features  cif"}
    assert observed[-2:] == ["queued"] * 2


def test_cells_extract_alone_after_a_failed_joint_extraction(
    two_encoders: list[Request], monkeypatch: pytest.MonkeyPatch, capsys: Output
) -> None:
    broken = Mock(side_effect=OSError("no space left on device"))
    monkeypatch.setattr("transfer.cells.execution.features_of_backbones", broken)
    assert run(two_encoders) == 0
    assert "each cell extracts separately" in capsys.readouterr().err


def test_memory_decides_how_many_checkpoints_share_a_pass(
    two_encoders: list[Request], monkeypatch: pytest.MonkeyPatch
) -> None:
    mine, second = two_encoders
    twice = replace(mine, task="cifar100_knn")
    for room, expected in {0: [[mine, twice], [second]], 2**40: [[mine, twice, second]]}.items():
        monkeypatch.setattr(transfer.cells.job, "network_memory_bytes", lambda room=room: room)
        assert list(checkpoints_that_fit([mine, second, twice])) == expected


def test_memory_that_torch_keeps_of_one_group_does_not_shrink_the_next(
    two_encoders: list[Request], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [tmp_path / f"{number}.pth" for number in range(4)]
    for file in files:
        file.write_bytes(bytes(100))
    requests = [replace(two_encoders[0], checkpoint=Checkpoint(ckpt=file)) for file in files]
    room = Mock(side_effect=[400, 0, 0])
    monkeypatch.setattr(transfer.cells.job, "network_memory_bytes", room)
    assert list(checkpoints_that_fit(requests)) == [requests[:2], requests[2:]]


@pytest.mark.slow
@pytest.mark.parametrize("key", ["coco_insseg", "voc0712_det_c4", "voc12_seg_fcn"])
def test_two_processes_share_batch_norms_and_test_images(key: str, cell: Cell) -> None:
    cell = cell.with_request(task=key)
    record = evaluate_on_gpus(cell)
    assert (record.details["norm"], record.details["num_processes"]) == ("naiveSyncBN", 2)
    assert record.details["num_test"] == record.data[cell.task.datasets()[0]]["counts"]["test"]
    assert finished(cell) == record


@pytest.mark.slow
def test_what_a_process_raises_is_raised_here(cell: Cell) -> None:
    settings = replace(cell.settings, training=replace(TWO, learning_rates=(1e6,)))
    with pytest.raises(NotFiniteError, match="iteration"):
        evaluate_on_gpus(cell.with_request(settings=settings))


@pytest.mark.parametrize(("line", "status"), [("kill -9 $$", -9), ("exit 3", 3)])
def test_the_first_death_is_the_reason(line: str, status: int) -> None:
    """The peers of an ended process fail later for that reason."""
    lines = (line, "sleep 0.6; exit 1", "sleep 0.6; kill -6 $$")
    assert wait_for_workers([subprocess.Popen(["bash", "-c", line]) for line in lines]) == status


def test_checkpoint_that_changed_is_the_reason_of_a_process(
    cell: Cell, checkpoint: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_job(tmp_path / "job.json", [cell.planned_request])
    checkpoint.write_bytes(b"torn")
    monkeypatch.setattr(stop, "listen", lambda: None)
    monkeypatch.setenv("RANK", "1")
    with pytest.raises(BackboneError):
        run_worker(tmp_path / "job.json")
    assert isinstance(first_error(tmp_path, 1), BackboneError)


def test_missing_data_are_told_before_a_process_starts(cell: Cell, tmp_path: Path) -> None:
    settings = replace(cell.settings, data=tmp_path / "nothing")
    with pytest.raises(DataError, match="does not exist"):
        evaluate_on_gpus(cell.with_request(settings=settings))


def test_a_process_that_dies_after_the_record_was_written_is_no_failure(
    cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    record: Any = object()
    module = "transfer.cells.job"
    monkeypatch.setattr(f"{module}.start_workers", lambda *_: [])
    monkeypatch.setattr(f"{module}.wait_for_workers", lambda _: -signal.SIGABRT)
    monkeypatch.setattr(f"{module}.finished", Mock(side_effect=[None, record, None, None]))
    assert evaluate_on_gpus(cell) is record
    with pytest.raises(KilledError, match="SIGABRT"):
        evaluate_on_gpus(cell)


@pytest.mark.slow
def test_a_killed_process_leaves_the_cell_to_be_started_again(cell: Cell, tmp_path: Path) -> None:
    training = replace(TWO, iterations=200, engine="torchvision")
    settings = replace(cell.settings, training=training)
    write_job(tmp_path / "job.json", [replace(cell.request, settings=settings)])
    program = transfer.cells.job.command(tmp_path / "job.json")
    with subprocess.Popen(program, stderr=subprocess.PIPE, text=True) as job:
        assert job.stderr is not None
        next(line for line in job.stderr if "  weights " in line)
        children = Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
        os.kill(int(children[1]), signal.SIGKILL)
        job.stderr.read()
    assert job.returncode == 128 + signal.SIGKILL
    assert [item.name for item in state.read_states(settings.results)] == ["stopped"]


@pytest.mark.slow
def test_stop_request_reaches_every_process(checkpoint: Path, settings: Settings) -> None:
    args = ["coco_det", "--ckpt", str(checkpoint), "--data", str(settings.data)]
    args += ["--results", str(settings.results), "--runs", str(settings.runs)]
    args += ["--schedule", "smoke", "--engine", "torchvision", "--gpus", "2"]
    command = [sys.executable, "-m", "transfer", *args, "--iterations", "60"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as first:
        assert first.stderr is not None
        next(line for line in first.stderr if "  weights " in line)
        time.sleep(5)
        first.send_signal(signal.SIGTERM)
        first.stderr.read()
    assert first.returncode == stop.EXIT_RESUMABLE
    second = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=True)
    assert "resuming after iteration" in second.stderr
