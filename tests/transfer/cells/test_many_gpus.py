"""A whole network in two processes: one record, written once."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from transfer.backbone import Backbone
from transfer.cells.many_gpus import KilledError, evaluate_where_asked, waited_for
from transfer.cells.request import Cell, Place
from transfer.cells.staleness import finished
from transfer.datasets.images import DataError
from transfer.finetuning.options import TrainingOptions
from transfer.running import stop
from transfer.running.not_finite import NotFiniteError

TWO = TrainingOptions(gpus=2)


@pytest.mark.slow
@pytest.mark.parametrize("key", ["coco_insseg", "voc0712_det_c4", "voc12_seg_fcn"])
def test_two_processes_share_batch_norms_and_test_images(
    key: str, small_backbone: Backbone, small_detection_data: Path, place: Place
) -> None:
    place = replace(place, data=small_detection_data, training=TWO)
    cell = Cell(key=key, backbone=small_backbone, seed=0, place=place)
    record = evaluate_where_asked(cell)
    assert (record.details["norm"], record.details["num_processes"]) == ("naiveSyncBN", 2)
    assert record.details["num_test"] == record.data[cell.task.datasets()[0]]["counts"]["test"]
    assert finished(cell) == record


@pytest.mark.slow
def test_what_a_process_raises_is_raised_here(
    small_backbone: Backbone, small_detection_data: Path, place: Place
) -> None:
    options = replace(TWO, learning_rates=(1e6,))
    place = replace(place, data=small_detection_data, training=options)
    cell = Cell(key="coco_det", backbone=small_backbone, seed=0, place=place)
    with pytest.raises(NotFiniteError, match="iteration"):
        evaluate_where_asked(cell)


@pytest.mark.parametrize(("line", "killed"), [("kill -9 $$", True), ("exit 3", False)])
def test_the_first_death_is_the_reason(
    monkeypatch: pytest.MonkeyPatch, line: str, killed: bool
) -> None:
    """The peers of a process that is gone fail later, and for no reason of their own."""
    lines = (line, "sleep 0.6; exit 1", "sleep 0.6; kill -6 $$")
    workers = [subprocess.Popen(["bash", "-c", line]) for line in lines]
    if killed:
        with pytest.raises(KilledError, match="SIGKILL"):
            waited_for(workers)
    else:
        assert waited_for(workers) == [3, 1, -6]


def test_missing_data_are_told_before_a_process_starts(
    small_backbone: Backbone, place: Place, tmp_path: Path
) -> None:
    place = replace(place, data=tmp_path / "nothing", training=TWO)
    cell = Cell(key="coco_det", backbone=small_backbone, seed=0, place=place)
    with pytest.raises(DataError, match="is not there"):
        evaluate_where_asked(cell)


def test_a_process_that_dies_after_the_record_was_written_is_no_failure(
    small_backbone: Backbone,
    small_detection_data: Path,
    place: Place,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = replace(place, data=small_detection_data, training=TWO)
    cell = Cell(key="coco_det", backbone=small_backbone, seed=0, place=place)

    def dies(workers: object) -> list[int]:
        raise KilledError(-signal.SIGABRT)

    record: Any = object()
    found = [None, record, record]
    monkeypatch.setattr("transfer.cells.many_gpus.started", lambda *_: [])
    monkeypatch.setattr("transfer.cells.many_gpus.waited_for", dies)
    monkeypatch.setattr("transfer.cells.many_gpus.finished", lambda _: found.pop(0))
    assert evaluate_where_asked(cell) is record
    found[:] = [None, None]
    with pytest.raises(KilledError, match="SIGABRT"):
        evaluate_where_asked(cell)


@pytest.mark.slow
def test_a_killed_process_leaves_the_cell_to_be_started_again(
    checkpoint: Path, small_detection_data: Path, place: Place
) -> None:
    words = [
        sys.executable,
        "-m",
        "benchmarks.execution.one_cell",
        "coco_det",
        "--ckpt",
        str(checkpoint),
    ]
    words += ["--data", str(small_detection_data), "--schedule", "smoke", "--engine", "torchvision"]
    words += ["--results", str(place.results), "--runs", str(place.runs), "--gpus", "2"]
    with subprocess.Popen(
        [*words, "--iterations", "200"], stderr=subprocess.PIPE, text=True
    ) as cell:
        assert cell.stderr is not None
        next(line for line in cell.stderr if "  weights " in line)
        children = Path(f"/proc/{cell.pid}/task/{cell.pid}/children").read_text().split()
        os.kill(int(children[1]), signal.SIGKILL)
        cell.stderr.read()
    assert cell.returncode == 128 + signal.SIGKILL
    assert not list(place.results.rglob("*.json"))


@pytest.mark.slow
def test_a_request_to_stop_reaches_every_process_and_the_same_command_goes_on(
    checkpoint: Path, small_detection_data: Path, place: Place
) -> None:
    words = [sys.executable, "-m", "transfer", "coco_det", "--ckpt", str(checkpoint)]
    words += ["--data", str(small_detection_data), "--schedule", "smoke", "--engine", "torchvision"]
    words += ["--results", str(place.results), "--runs", str(place.runs), "--gpus", "2"]
    words += ["--iterations", "60"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as first:
        assert first.stderr is not None
        next(line for line in first.stderr if "  weights " in line)
        time.sleep(5)
        first.send_signal(signal.SIGTERM)
        first.stderr.read()
    assert first.returncode == stop.REQUEUE
    second = subprocess.run(words, stderr=subprocess.PIPE, text=True, check=True)
    assert "going on after iteration" in second.stderr
