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

from pretrain.running import stop
from pretrain.running.errors import NotFiniteError
from transfer.backbone import Backbone
from transfer.cells.many_gpus import KilledError, evaluate_on_gpus, wait_for_workers
from transfer.cells.request import Cell, CellSettings, finished
from transfer.datasets.expected import DataError
from transfer.finetuning.options import TrainingOptions

TWO = TrainingOptions(gpus=2)


@pytest.mark.slow
@pytest.mark.parametrize("key", ["coco_insseg", "voc0712_det_c4", "voc12_seg_fcn"])
def test_two_processes_share_batch_norms_and_test_images(
    key: str, small_backbone: Backbone, small_data: Path, settings: CellSettings
) -> None:
    settings = replace(settings, data=small_data, training=TWO)
    cell = Cell(key=key, backbone=small_backbone, seed=0, settings=settings)
    record = evaluate_on_gpus(cell)
    assert (record.details["norm"], record.details["num_processes"]) == ("naiveSyncBN", 2)
    assert record.details["num_test"] == record.data[cell.task.datasets()[0]]["counts"]["test"]
    assert finished(cell) == record


@pytest.mark.slow
def test_what_a_process_raises_is_raised_here(
    small_backbone: Backbone, small_data: Path, settings: CellSettings
) -> None:
    options = replace(TWO, learning_rates=(1e6,))
    settings = replace(settings, data=small_data, training=options)
    cell = Cell(key="coco_det", backbone=small_backbone, seed=0, settings=settings)
    with pytest.raises(NotFiniteError, match="iteration"):
        evaluate_on_gpus(cell)


@pytest.mark.parametrize(("line", "killed"), [("kill -9 $$", True), ("exit 3", False)])
def test_the_first_death_is_the_reason(
    monkeypatch: pytest.MonkeyPatch, line: str, killed: bool
) -> None:
    """The peers of a process that is gone fail later, and for no reason of their own."""
    lines = (line, "sleep 0.6; exit 1", "sleep 0.6; kill -6 $$")
    workers = [subprocess.Popen(["bash", "-c", line]) for line in lines]
    if killed:
        with pytest.raises(KilledError, match="SIGKILL"):
            wait_for_workers(workers)
    else:
        assert wait_for_workers(workers) == [3, 1, -6]


def test_missing_data_are_told_before_a_process_starts(
    small_backbone: Backbone, settings: CellSettings, tmp_path: Path
) -> None:
    settings = replace(settings, data=tmp_path / "nothing", training=TWO)
    cell = Cell(key="coco_det", backbone=small_backbone, seed=0, settings=settings)
    with pytest.raises(DataError, match="is not there"):
        evaluate_on_gpus(cell)


def test_a_process_that_dies_after_the_record_was_written_is_no_failure(
    small_backbone: Backbone,
    small_data: Path,
    settings: CellSettings,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settings = replace(settings, data=small_data, training=TWO)
    cell = Cell(key="coco_det", backbone=small_backbone, seed=0, settings=settings)

    def dies(workers: object) -> list[int]:
        raise KilledError(-signal.SIGABRT)

    record: Any = object()
    found = [None, record, record]
    monkeypatch.setattr("transfer.cells.many_gpus.start_workers", lambda *_: [])
    monkeypatch.setattr("transfer.cells.many_gpus.wait_for_workers", dies)
    monkeypatch.setattr("transfer.cells.many_gpus.finished", lambda _: found.pop(0))
    assert evaluate_on_gpus(cell) is record
    found[:] = [None, None]
    with pytest.raises(KilledError, match="SIGABRT"):
        evaluate_on_gpus(cell)


@pytest.fixture
def words(checkpoint: Path, small_data: Path, settings: CellSettings) -> list[str]:
    """A detector in two processes, as words behind the name of a program."""
    places = ["--results", str(settings.results), "--runs", str(settings.runs)]
    words = ["coco_det", "--ckpt", str(checkpoint), "--data", str(small_data), *places]
    return [*words, "--schedule", "smoke", "--engine", "torchvision", "--gpus", "2"]


@pytest.mark.slow
def test_a_killed_process_leaves_the_cell_to_be_started_again(
    words: list[str], settings: CellSettings
) -> None:
    program = [sys.executable, "-m", "benchmarks.execution.one_cell", *words]
    with subprocess.Popen(
        [*program, "--iterations", "200"], stderr=subprocess.PIPE, text=True
    ) as cell:
        assert cell.stderr is not None
        next(line for line in cell.stderr if "  weights " in line)
        children = Path(f"/proc/{cell.pid}/task/{cell.pid}/children").read_text().split()
        os.kill(int(children[1]), signal.SIGKILL)
        cell.stderr.read()
    assert cell.returncode == 128 + signal.SIGKILL
    assert not list(settings.results.rglob("*.json"))


@pytest.mark.slow
def test_a_request_to_stop_reaches_every_process_and_the_same_command_goes_on(
    words: list[str],
) -> None:
    command = [sys.executable, "-m", "transfer", *words, "--iterations", "60"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as first:
        assert first.stderr is not None
        next(line for line in first.stderr if "  weights " in line)
        time.sleep(5)
        first.send_signal(signal.SIGTERM)
        first.stderr.read()
    assert first.returncode == stop.EXIT_RESUMABLE
    second = subprocess.run(command, stderr=subprocess.PIPE, text=True, check=True)
    assert "going on after iteration" in second.stderr
