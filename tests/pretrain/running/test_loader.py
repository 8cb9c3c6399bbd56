"""The loader: batches do not depend on workers, clear errors, clean ends."""

import os
import pickle
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from torch import Tensor
from torch.utils.data import DataLoader

from pretrain.running import loader, stop
from pretrain.running.loader import WorkerKilledError, load_batches
from transfer.datasets.expected import DataError


def square(number: int) -> Tensor:
    return torch.full((1000, 100), number**2)  # larger than a connection holds


def children() -> set[int]:
    listed = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text()
    return {int(pid) for pid in listed.split()}


@pytest.fixture
def new_children() -> Callable[[], set[int]]:
    """A function that returns the processes that the test has started and that still run."""
    earlier = children()  # such as multiprocessing's resource tracker
    return lambda: children() - earlier


def worker_pids(batches: Iterator[int]) -> list[int]:
    """Process ids of two workers, which send them as batches."""
    return [next(batches), next(batches)]


@pytest.mark.parametrize("num_workers", [0, 1, 3])
def test_batches_come_in_order_whatever_the_workers(num_workers: int) -> None:
    for pin, sign in ((None, 1), (torch.neg, -1)):
        result = load_batches(square, range(20), num_workers=num_workers, pin_memory=pin)
        assert [int(batch[0, 0]) for batch in result] == [sign * n**2 for n in range(20)]


def test_places_are_taken_no_further_than_the_workers_are_ahead() -> None:
    taken = count()
    batches = load_batches(lambda location: location, taken, num_workers=2)
    assert [next(batches) for _ in range(3)] == [0, 1, 2]
    batches.close()
    assert next(taken) == 3 + 2 * 2


def test_loader_leaves_the_state_of_torchs_generator_alone() -> None:
    previous = torch.get_rng_state()
    assert list(load_batches(lambda location: location, range(3), num_workers=1)) == [0, 1, 2]
    assert torch.equal(torch.get_rng_state(), previous)


@pytest.mark.parametrize("handler", [signal.SIG_DFL, lambda *_: None])
def test_loader_keeps_the_handler_of_sigchld(handler: Any) -> None:
    previous = signal.signal(signal.SIGCHLD, handler)
    try:
        with closing(load_batches(lambda location: location, count(), num_workers=1)) as batches:
            next(batches)
            assert signal.getsignal(signal.SIGCHLD) == handler
        assert signal.getsignal(signal.SIGCHLD) == handler
    finally:
        signal.signal(signal.SIGCHLD, previous)


class FileError(DataError):
    """An error with an attribute."""

    size = 0


def failing(location: int) -> int:
    if location == 3:
        error = FileError("n01/cat.jpg does not decode")
        error.size = 17
        raise error
    return location


def test_an_error_of_a_worker_is_the_error_it_was(new_children: Callable[[], set[int]]) -> None:
    batches = load_batches(failing, range(9), num_workers=2)
    assert [next(batches) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(FileError, match="does not decode") as output:
        next(batches)
    assert str(output.value) == "n01/cat.jpg does not decode"
    assert output.value.size == 17
    assert "in failing" in "".join(traceback.format_exception(output.value))
    assert not new_children()


def test_a_killed_worker_is_told_as_memory_that_ran_out(
    new_children: Callable[[], set[int]],
) -> None:
    batches = load_batches(lambda _: os.getpid(), count(), num_workers=2)
    os.kill(worker_pids(batches)[1], signal.SIGKILL)
    with pytest.raises(WorkerKilledError, match=r"SIGKILL.*memory ran out.*--cpus.*to resume"):
        for _ in batches:
            pass
    assert not new_children()


@pytest.mark.parametrize("status", [0, 3])
def test_exit_of_a_worker_is_an_error(status: int) -> None:
    with pytest.raises(WorkerKilledError, match=rf"exit status {status}\b.*to resume"):
        list(load_batches(lambda _: os._exit(status), range(3), num_workers=1))


def test_a_worker_killed_in_the_middle_of_a_batch_blocks_nobody() -> None:
    """The batch exceeds a pipe's buffer, and half of it is sent."""
    batches = load_batches(lambda _: (os.getpid(), bytes(10**7)), count(), num_workers=2)
    pid, _ = next(batches)
    time.sleep(0.5)  # for both to send what fits
    os.kill(pid, signal.SIGKILL)
    with pytest.raises(WorkerKilledError):
        for _ in batches:
            pass


def test_workers_do_not_hear_requests_to_stop() -> None:
    with closing(load_batches(lambda _: os.getpid(), count(), num_workers=2)) as batches:
        pids = worker_pids(batches)
        for number in stop.SIGNALS:
            for pid in pids:
                os.kill(pid, number)
        assert {next(batches) for _ in range(20)} == set(pids)


def test_closing_waits_for_no_lock_of_a_killed_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    iterators: list[Any] = []
    iterate = DataLoader.__iter__

    def noted(self: Any) -> Any:
        iterators.append(iterate(self))
        return iterators[0]

    monkeypatch.setattr(DataLoader, "__iter__", noted)
    batches = load_batches(lambda location: location, count(), num_workers=1)
    assert next(batches) == 0
    assert iterators.pop()._workers_done_event._cond._lock.acquire(timeout=60)
    batches.close()


def test_a_signal_that_comes_while_a_worker_starts_does_not_end_it() -> None:
    """The signal arrives before the worker has executed any code."""
    armed = [signal.SIGTERM]

    def send() -> None:
        for number in armed:
            os.kill(os.getpid(), number)

    os.register_at_fork(after_in_child=send)
    try:
        assert list(load_batches(failing, range(3), num_workers=2)) == [0, 1, 2]
    finally:
        armed.clear()


@pytest.mark.parametrize("pin", [None, lambda batch: batch])
def test_an_iteration_that_is_left_ends_its_workers(
    pin: None, new_children: Callable[[], set[int]]
) -> None:
    def slow(location: int) -> int:
        time.sleep(0.0 if location < 2 else 600)
        return location

    batches = load_batches(slow, range(9), num_workers=2, pin_memory=pin)
    assert next(batches) == 0
    assert len(new_children()) == 2
    del batches
    assert not new_children()


def test_batches_are_copied_when_shared_memory_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise RuntimeError("unable to allocate shared memory")

    pickler = SimpleNamespace(dumps=refuse)
    monkeypatch.setattr("pretrain.running.loader.ForkingPickler", pickler)
    result = load_batches(square, range(5), num_workers=2)
    assert [int(batch[0, 0]) for batch in result] == [n**2 for n in range(5)]


PROGRAM = """
import os, sys, time
from itertools import count
from pretrain.running import stop
from pretrain.running.loader import load_batches

def make(place):
    time.sleep(0.0 if place < 4 else 600)
    return os.getpid()

batches = load_batches(make, count(), num_workers=2, pin_memory={pin})
print(*{{next(batches) for _ in range(4)}}, flush=True)
{end}
"""


def have_ended(pids: list[int]) -> bool:
    """Return whether these processes end soon."""
    until = time.monotonic() + 60
    while any(Path(f"/proc/{pid}/cmdline").exists() for pid in pids):
        if time.monotonic() > until:
            return False
        time.sleep(0.05)
    return True


@pytest.mark.slow
@pytest.mark.parametrize(
    ("pin", "end", "status"),
    [
        ("None", "raise OSError('no')", 1),
        ("lambda batch: batch", "raise stop.Stopped(stop.EXIT_RESUMABLE)", stop.EXIT_RESUMABLE),
        ("None", "os.kill(os.getpid(), 9)", -signal.SIGKILL),
    ],
)
def test_workers_end_with_the_process_however_it_ends(pin: str, end: str, status: int) -> None:
    """Workers are busy for long, and the iterator is still referenced."""
    completed = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(end=end, pin=pin)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        timeout=120,
    )
    assert completed.returncode == status
    assert have_ended([int(arg) for arg in completed.stdout.split()])


class Unreachable:
    """A value that cannot be received."""

    def __reduce__(self) -> tuple[Any, ...]:
        return lost_connection, ()


def lost_connection() -> None:
    raise ConnectionResetError("reset")


@pytest.mark.parametrize(
    ("status", "error"), [(-9, WorkerKilledError), (None, ConnectionResetError)]
)
def test_a_batch_that_a_killed_worker_cannot_share_has_its_reason(
    status: int | None, error: type[Exception]
) -> None:
    worker = Mock(exitcode=status)
    with pytest.raises(error):
        loader._unpacked(pickle.dumps(Unreachable()), [worker])
    worker.join.assert_called_once()
