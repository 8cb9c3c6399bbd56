"""A whole network in two processes: one record, written once."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from pretrain.running import stop
from pretrain.running.errors import NotFiniteError
from transfer.cells.cell import Cell, finished
from transfer.cells.many_gpus import KilledError, evaluate_on_gpus, wait_for_workers
from transfer.cells.request import Settings
from transfer.datasets.expected import DataError
from transfer.encoders.encoder import Encoder
from transfer.finetuning.options import TrainingOptions

TWO = TrainingOptions(gpus=2)


@pytest.fixture
def cell(small_backbone: Encoder, settings: Settings) -> Cell:
    """A detector in two processes."""
    settings = replace(settings, training=TWO)
    return Cell.with_backbone(task="coco_det", backbone=small_backbone, seed=0, settings=settings)


@pytest.mark.slow
@pytest.mark.parametrize("key", ["coco_insseg", "voc0712_det_c4", "voc12_seg_fcn"])
def test_two_processes_share_batch_norms_and_test_images(key: str, cell: Cell) -> None:
    cell = cell.asking(task=key)
    record = evaluate_on_gpus(cell)
    assert (record.details["norm"], record.details["num_processes"]) == ("naiveSyncBN", 2)
    assert record.details["num_test"] == record.data[cell.task.datasets()[0]]["counts"]["test"]
    assert finished(cell) == record


@pytest.mark.slow
def test_what_a_process_raises_is_raised_here(cell: Cell) -> None:
    settings = replace(cell.settings, training=replace(TWO, learning_rates=(1e6,)))
    with pytest.raises(NotFiniteError, match="iteration"):
        evaluate_on_gpus(cell.asking(settings=settings))


@pytest.mark.parametrize(("line", "killed"), [("kill -9 $$", True), ("exit 3", False)])
def test_the_first_death_is_the_reason(line: str, killed: bool) -> None:
    """The peers of a process that is gone fail later, and for no reason of their own."""
    lines = (line, "sleep 0.6; exit 1", "sleep 0.6; kill -6 $$")
    workers = [subprocess.Popen(["bash", "-c", line]) for line in lines]
    if killed:
        with pytest.raises(KilledError, match="SIGKILL"):
            wait_for_workers(workers)
    else:
        assert wait_for_workers(workers) == [3, 1, -6]


def test_missing_data_are_told_before_a_process_starts(cell: Cell, tmp_path: Path) -> None:
    settings = replace(cell.settings, data=tmp_path / "nothing")
    with pytest.raises(DataError, match="is not there"):
        evaluate_on_gpus(cell.asking(settings=settings))


def test_a_process_that_dies_after_the_record_was_written_is_no_failure(
    cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    record: Any = object()
    module = "transfer.cells.many_gpus"
    monkeypatch.setattr(f"{module}.start_workers", lambda *_: [])
    died = Mock(side_effect=KilledError(-signal.SIGABRT))
    monkeypatch.setattr(f"{module}.wait_for_workers", died)
    monkeypatch.setattr(f"{module}.finished", Mock(side_effect=[None, record, record, None, None]))
    assert evaluate_on_gpus(cell) is record
    with pytest.raises(KilledError, match="SIGABRT"):
        evaluate_on_gpus(cell)


@pytest.fixture
def words(checkpoint: Path, small_data: Path, settings: Settings) -> list[str]:
    """A detector in two processes, as words behind the name of a program."""
    places = ["--results", str(settings.results), "--runs", str(settings.runs)]
    words = ["coco_det", "--ckpt", str(checkpoint), "--data", str(small_data), *places]
    return [*words, "--schedule", "smoke", "--engine", "torchvision", "--gpus", "2"]


@pytest.mark.slow
def test_a_killed_process_leaves_the_cell_to_be_started_again(
    words: list[str], settings: Settings
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
    assert not list(settings.results.rglob("*.seed0.json"))


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
