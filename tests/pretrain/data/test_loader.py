"""Worker processes: their batches, their errors, and that none outlives its run."""

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing import active_children
from multiprocessing.process import BaseProcess
from pathlib import Path
from types import FrameType
from typing import NamedTuple

import pytest
import torch
from torch import Tensor
from torch.utils.data import Dataset

from pretrain.data import loader
from pretrain.data.images import DataError
from pretrain.data.loader import WorkerError, load_ahead
from pretrain.running.stop import SIGNALS

ROOT = Path(__file__).parents[3]


class Steps(Dataset[list[Tensor]]):
    """A batch that holds its step, or what a function makes of it."""

    def __init__(self, act: Callable[[int], object] = lambda step: None) -> None:
        self.act = act

    def __getitem__(self, step: int) -> list[Tensor]:
        self.act(step)
        return [torch.full((3,), step)]


def count_steps(workers: int, dataset: Dataset[list[Tensor]] | None = None) -> list[int]:
    batches = load_ahead(dataset or Steps(), range(2, 9), workers=workers, pin_memory=False)
    return [int(part[0]) for (part,) in batches]


@pytest.mark.parametrize("workers", [0, 1, 2])
def test_batches_come_in_order_and_no_worker_stays(workers: int) -> None:
    assert count_steps(workers) == list(range(2, 9))
    assert active_children() == []


def fail(step: int) -> None:
    if step == 5:
        raise DataError("x.jpg does not decode")


@pytest.mark.parametrize("workers", [0, 2])
def test_an_error_of_the_data_arrives_as_it_was_raised(workers: int) -> None:
    with pytest.raises(DataError) as caught:
        count_steps(workers, Steps(fail))
    assert str(caught.value) == "x.jpg does not decode"
    assert active_children() == []


def test_the_traceback_of_a_worker_is_a_note_of_its_error() -> None:
    with pytest.raises(DataError) as caught:
        count_steps(1, Steps(fail))
    assert "in fail" in caught.value.__notes__[0]


class LocalError(Exception):
    """It does not come out of a pickle as it went in: two arguments, one of them told."""

    def __init__(self, name: str, number: int) -> None:
        super().__init__(f"{name} {number}")


def fail_locally(step: int) -> None:
    raise LocalError("number", step)


def test_an_error_that_does_not_pickle_arrives_as_its_text() -> None:
    with pytest.raises(RuntimeError) as caught:
        count_steps(1, Steps(fail_locally))
    assert str(caught.value) == "LocalError: number 2"


def test_a_batch_without_room_in_shared_memory_arrives_as_a_copy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def full(tensor: Tensor) -> Tensor:
        raise RuntimeError("unable to write to file: No space left on device (28)")

    monkeypatch.setattr(Tensor, "share_memory_", full)
    assert count_steps(1) == count_steps(0)


class Usage(NamedTuple):
    total: int
    free: int


def test_a_small_shared_memory_is_left_to_others_and_noted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(2**26, 2**20))
    monkeypatch.delattr(Tensor, "share_memory_")
    loader.note_small_shared_memory.cache_clear()
    assert [count_steps(2), count_steps(1)] == [count_steps(0)] * 2
    noted = capsys.readouterr().err
    assert noted.count("/dev/shm has 67 MB; batches that find no room there are copied") == 1
    assert "docker run --shm-size=8g" in noted
    loader.note_small_shared_memory.cache_clear()


def test_workers_that_are_busy_and_deaf_end_when_the_generator_is_closed() -> None:
    slow = Steps(lambda step: time.sleep(3600 if step > 2 else 0))
    batches = load_ahead(slow, range(2, 9), workers=2, pin_memory=False)
    next(batches)
    workers = active_children()
    for worker in workers:
        worker.terminate()
    assert all(worker.is_alive() for worker in workers)
    batches.close()
    assert active_children() == []


class HeardError(Exception):
    """An error that a signal handler raises here."""


def test_a_signal_during_the_end_of_the_workers_is_heard_after_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    kill = loader._kill

    def interrupted_kill(processes: list[BaseProcess]) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        kill(processes)

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise HeardError

    monkeypatch.setattr(loader, "_kill", interrupted_kill)
    before = signal.signal(signal.SIGINT, interrupt)
    batches = load_ahead(Steps(), range(2, 9), workers=2, pin_memory=False)
    try:
        next(batches)
        with pytest.raises(HeardError):
            batches.close()
    finally:
        signal.signal(signal.SIGINT, before)
    assert active_children() == []


fragile: list[signal.Signals] = []
"""Signals that a process sends itself as soon as it has been forked."""


def signal_itself() -> None:
    for number in fragile:
        os.kill(os.getpid(), number)


os.register_at_fork(after_in_child=signal_itself)


def test_signals_between_the_start_and_the_preparation_of_a_worker_do_nothing() -> None:
    fragile.extend(SIGNALS)
    try:
        assert count_steps(2) == list(range(2, 9))
    finally:
        fragile.clear()


@pytest.mark.slow  # torch looks for dead workers every five seconds
@pytest.mark.parametrize(
    ("number", "told"),
    [(signal.SIGKILL, "memory has probably run out"), (signal.SIGBUS, "/dev/shm")],
)
def test_a_killed_worker_says_what_it_probably_was(number: signal.Signals, told: str) -> None:
    def die(step: int) -> None:
        if step == 5:
            signal.signal(number, signal.SIG_DFL) if number == signal.SIGBUS else None
            os.kill(os.getpid(), number)

    with pytest.raises(WorkerError, match=rf"killed by {number.name}.*{told}.*same command goes"):
        count_steps(2, Steps(die))
    assert active_children() == []


@pytest.mark.slow
def test_a_worker_that_is_killed_while_it_sends_a_batch_is_told_apart_from_bad_data() -> None:
    for delay_s in (0.0, 0.01, 0.02, 0.03):
        batches = load_ahead(Steps(), range(10**6), workers=2, pin_memory=False)
        next(batches)
        time.sleep(delay_s)
        active_children()[0].kill()
        with pytest.raises(WorkerError, match="killed by SIGKILL"):
            list(batches)


SCRIPT = """
import multiprocessing, os, sys, time
from tests.pretrain.data.test_loader import Steps
from pretrain.data.loader import load_ahead
batches = load_ahead(Steps(), range(100), workers=2, pin_memory=False)
next(batches)
print(*(child.pid for child in multiprocessing.active_children()), flush=True)
"""


def start_script(end: str) -> tuple[subprocess.Popen[str], list[int]]:
    """A process that has started two workers and then does something else; their ids."""
    command = [sys.executable, "-c", SCRIPT + end]
    process = subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    return process, [int(word) for word in process.stdout.readline().split()]


def wait_until_gone(process: int) -> None:
    deadline_s = time.monotonic() + 60
    while Path(f"/proc/{process}").exists():
        assert time.monotonic() < deadline_s, f"process {process} still runs"
        time.sleep(0.05)


@pytest.mark.slow
def test_a_process_that_forgets_its_workers_ends_with_its_error() -> None:
    process, _ = start_script("raise ValueError('of the loop')")
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 1
    assert errors.endswith("ValueError: of the loop\n")


@pytest.mark.slow
def test_workers_end_with_a_process_that_is_killed() -> None:
    process, workers = start_script("time.sleep(3600)")
    assert len(workers) == 2
    process.kill()
    for worker in workers:
        wait_until_gone(worker)
    process.communicate(timeout=60)
