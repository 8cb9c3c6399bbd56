"""A signal to all processes of a command interrupts it."""

import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import transfer.__main__
from pretrain.running import stop
from pretrain.running.loader import _packed
from tests.campaign.processes import children
from tests.transfer.cells.forked_command import ForkedCommand, loader_processes
from tests.transfer.cells.many_images import generate_many
from transfer.cells.state import read_states
from transfer.datasets.images import Images
from transfer.datasets.synthetic.generate import generate

ROOT = Path(__file__).parents[3]
pytestmark = pytest.mark.slow
NUM_WORKERS_HERE = (
    "transfer.frozen.extraction.num_workers",
    "transfer.frozen.crops.num_workers",
    "transfer.frozen.random_views.num_workers",
    "transfer.finetuning.stream.num_workers",
)


@pytest.fixture(autouse=True)
def workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two loader processes for any number of images."""
    for name in NUM_WORKERS_HERE:
        monkeypatch.setattr(name, lambda images: 2)


@contextmanager
def closed_gate(tmp_path: Path) -> Iterator[Path]:
    """No worker makes a batch before this file is there."""
    gate = tmp_path / "gate"

    def waiting(*arguments: Any) -> bytes:
        while not gate.exists():
            time.sleep(0.01)
        return _packed(*arguments)

    with patch("pretrain.running.loader._packed", waiting):
        yield gate


def start_cell(home: Path, words: tuple[str, ...]) -> ForkedCommand:
    """Start a cell whose results and working files lie below `home`."""
    positions = ["--results", str(home / "results"), "--runs", str(home / "runs")]
    main = transfer.__main__.main
    return ForkedCommand(main, [*words, *positions], home.with_suffix(".log"))


def result(home: Path, name: str = "*") -> dict[str, Any]:
    """Return the fields of a record that do not depend on time."""
    (file,) = (home / "results").rglob(f"{name}.seed0.json")
    record = json.loads(file.read_text())
    details = {k: v for k, v in record["details"].items() if k not in ("weights", "training")}
    return {"metrics": record["metrics"], "details": details}


CELLS = {
    "extraction": ("cifar10", ("cifar10_knn",)),
    "probe": ("cifar10", ("cifar10_linear",)),
    "few labels": ("in1k_1pct", ("in1k_semi_1pct@co2",)),
    "detector": (
        "coco17",
        ("coco_det", "--engine", "torchvision", "--iterations", "3", "--image-px", "64"),
    ),
    "segmentation": (
        "voc12_seg",
        ("voc12_seg_fcn", "--iterations", "3", "--image-px", "64"),
    ),
}
"""The data and the words of a cell."""


@pytest.mark.parametrize(
    ("number", "key", "words"),
    [(signal.SIGTERM, *cell) for cell in CELLS.values()]
    + [(signal.SIGINT, *CELLS["probe"]), (signal.SIGHUP, *CELLS["extraction"])],
)
def test_a_cell_that_all_processes_were_asked_to_stop_goes_on_to_the_same_record(
    tmp_path: Path, checkpoint: Path, number: signal.Signals, key: str, words: tuple[str, ...]
) -> None:
    generate(tmp_path / "data", keys=(key,))
    words = (*words, "--ckpt", str(checkpoint), "--data", str(tmp_path / "data"))
    words = (*words, "--schedule", "smoke")
    undisturbed, disturbed = tmp_path / "a", tmp_path / "b"
    assert start_cell(undisturbed, words).wait() == 0
    if "linear" in words[0]:  # the first loader that starts is to be the training's
        shutil.copytree(tmp_path / "a/runs/cache/features", tmp_path / "b/runs/cache/features")
    with closed_gate(tmp_path) as gate:
        command = start_cell(disturbed, words)
        command.wait_for_workers()
        command.signal_all(number)
        gate.touch()
    assert command.wait() == stop.EXIT_RESUMABLE, command.log.read_text()
    assert command.last_line() == f"stopped by {number.name}. Run the same command to resume"
    assert not list((disturbed / "results").rglob("*.seed0.json"))
    assert start_cell(disturbed, words).wait() == 0
    assert result(disturbed) == result(undisturbed)


def test_cells_side_by_side_go_on_after_a_signal_to_all_their_processes(
    tmp_path: Path, checkpoint: Path
) -> None:
    generate_many(tmp_path / "data")
    args = ("--ckpt", str(checkpoint), "--data", str(tmp_path / "data"), "--schedule", "smoke")
    positions = ["--results", str(tmp_path / "b/results"), "--runs", str(tmp_path / "b/runs")]
    command = [sys.executable, "benchmarks/run_all.py", *args, *positions, "--workers", "2"]
    command += ["--tasks", "cifar10_knn,cifar10_linear"]
    with subprocess.Popen(
        command, cwd=ROOT, stderr=subprocess.PIPE, text=True, start_new_session=True
    ) as both:
        assert both.stderr is not None
        while not (loaders := [w for cell in children(both.pid) for w in loader_processes(cell)]):
            assert both.poll() is None
        for pid in (*loaders, *children(both.pid), both.pid):
            os.kill(pid, signal.SIGTERM)
        output = both.stderr.read().splitlines()
    assert both.returncode == stop.EXIT_RESUMABLE, output
    assert output[-1] == "stopped by SIGTERM. Run the same command to resume"
    states = [state.name for state in read_states(tmp_path / "b/results")]
    assert set(states) <= {"stopped", "done"}
    subprocess.run(command, cwd=ROOT, stderr=subprocess.DEVNULL, check=True)
    assert start_cell(tmp_path / "a", ("cifar10_linear", *args)).wait() == 0
    assert result(tmp_path / "b", "cifar10_linear*") == result(tmp_path / "a")


def test_run_all_continues_without_a_reader_of_its_output(tmp_path: Path, checkpoint: Path) -> None:
    generate(tmp_path / "data", keys=("cifar10",))
    args = ["--ckpt", str(checkpoint), "--data", str(tmp_path / "data"), "--schedule", "smoke"]
    args += ["--results", str(tmp_path / "results"), "--runs", str(tmp_path / "runs")]
    args = [sys.executable, "benchmarks/run_all.py", *args, "--tasks", "cifar10_knn"]
    piped = f"({shlex.join(args)}; echo $? > {tmp_path}/status) 2>&1 | head -1"
    subprocess.run(piped, shell=True, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
    assert (tmp_path / "status").read_text() == "0\n"
    assert (tmp_path / "results" / "tables").exists()


def test_the_second_ctrl_c_means_now(
    tmp_path: Path, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Images, "__getitem__", lambda *_: time.sleep(600))
    generate(tmp_path / "data", keys=("cifar10",))
    args = ("cifar10_knn", "--ckpt", str(checkpoint), "--data", str(tmp_path / "data"))
    command = start_cell(tmp_path / "a", (*args, "--schedule", "smoke"))
    command.wait_for_workers()
    command.signal_all(signal.SIGINT)
    time.sleep(1)
    command.signal_all(signal.SIGINT)
    assert command.wait() == 1
    assert command.last_line() == "KeyboardInterrupt"
