"""The loader: same batches with any number of workers, honest errors, and ends that are ends."""

import errno
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import NoReturn

import pytest
import torch
from torch import Tensor

from pretrain.running import stop
from pretrain.running.loader import SharedMemoryError, WorkerKilledError, load_batches
from transfer.datasets.expected import DataError


def square(number: int) -> Tensor:
    return torch.full((1000, 100), number**2)  # larger than a connection holds


def children() -> set[int]:
    listed = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text()
    return {int(pid) for pid in listed.split()}


def worker_pids(batches: Iterator[int]) -> list[int]:
    """Process ids of two workers that send their own."""
    return [next(batches), next(batches)]


@pytest.mark.parametrize("num_workers", [0, 1, 3])
def test_batches_come_in_order_whatever_the_workers(num_workers: int) -> None:
    for pin, sign in ((None, 1), (torch.neg, -1)):
        found = load_batches(square, range(20), num_workers=num_workers, pin=pin)
        assert [int(batch[0, 0]) for batch in found] == [sign * n**2 for n in range(20)]


def test_places_are_taken_no_further_than_the_workers_are_ahead() -> None:
    taken = count()
    batches = load_batches(lambda place: place, taken, num_workers=2)
    assert [next(batches) for _ in range(3)] == [0, 1, 2]
    batches.close()
    assert next(taken) == 3 + 2 * 2


class FileError(DataError):
    """An error with an attribute and a constructor of its own."""

    def __init__(self, name: str, size: int) -> None:
        super().__init__(f"{name} does not decode")
        self.size = size


def failing(place: int) -> int:
    if place == 3:
        raise FileError("n01/cat.jpg", 17)
    return place


@pytest.mark.parametrize("pin", [None, lambda batch: batch])
def test_an_error_of_a_worker_is_the_error_it_was(pin: None) -> None:
    batches = load_batches(failing, range(9), num_workers=2, pin=pin)
    assert [next(batches) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(FileError, match="does not decode") as told:
        next(batches)
    assert str(told.value) == "n01/cat.jpg does not decode"
    assert told.value.size == 17
    assert "in failing" in "".join(traceback.format_exception(told.value))
    assert not children()


@pytest.mark.parametrize(
    "text",
    [
        "unable to write to file </torch_12_345_0>: No space left on device (28)",
        "unable to allocate shared memory(shm) for file </torch_1_2_0>: "
        "Resource temporarily unavailable (11)",
    ],
)
def test_a_full_shared_memory_is_told_with_a_way_out(text: str) -> None:
    def full(place: int) -> NoReturn:
        raise RuntimeError(text)

    with pytest.raises(SharedMemoryError, match=r"/dev/shm.*fewer processes.*--shm-size"):
        next(load_batches(full, range(3), num_workers=1))


def test_a_bus_error_is_told_as_a_full_shared_memory() -> None:
    def full(place: int) -> None:
        signal.signal(signal.SIGBUS, signal.SIG_DFL)  # quieter than that of pytest
        os.kill(os.getpid(), signal.SIGBUS)

    with pytest.raises(SharedMemoryError, match=r"Bus error.*/dev/shm.*fewer processes"):
        next(load_batches(full, range(3), num_workers=1))


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/data/a.jpg"),
        RuntimeError(
            "unable to open shared memory object </torch_1_2_0> in read-write mode: "
            "Too many open files (24)"
        ),
    ],
)
def test_other_errors_are_not_taken_for_a_full_shared_memory(error: Exception) -> None:
    def fail(place: int) -> NoReturn:
        raise error

    with pytest.raises(type(error)) as told:
        next(load_batches(fail, range(3), num_workers=1))
    assert (type(told.value), str(told.value)) == (type(error), str(error))


@pytest.mark.parametrize("pin", [None, lambda batch: batch])
def test_a_killed_worker_is_told_as_memory_that_ran_out(pin: None) -> None:
    batches = load_batches(lambda _: os.getpid(), count(), num_workers=2, pin=pin)
    os.kill(worker_pids(batches)[1], signal.SIGKILL)
    with pytest.raises(WorkerKilledError, match=r"SIGKILL.*memory ran out.*--cpus.*goes on"):
        for _ in batches:
            pass
    assert not children()


def test_a_worker_killed_in_the_middle_of_a_batch_blocks_nobody() -> None:
    """A batch that is larger than what a connection holds, half of which is sent."""
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


def test_a_signal_that_comes_while_a_worker_starts_does_not_end_it() -> None:
    """It comes before the worker has executed a line of its own."""
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
def test_an_iteration_that_is_left_ends_its_workers(pin: None) -> None:
    def slow(place: int) -> int:
        time.sleep(0.0 if place < 2 else 600)
        return place

    batches = load_batches(slow, range(9), num_workers=2, pin=pin)
    assert next(batches) == 0
    assert len(children()) == 2
    del batches
    assert not children()


PROGRAM = """
import os, sys, time
from itertools import count
from pretrain.running import stop
from pretrain.running.loader import load_batches

def make(place):
    time.sleep(0.0 if place < 4 else 600)
    return os.getpid()

batches = load_batches(make, count(), num_workers=2, pin={pin})
print(*{{next(batches) for _ in range(4)}}, flush=True)
{end}
"""


def gone(pids: list[int]) -> bool:
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
    """While they are busy for long, and the iteration is still referred to."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(end=end, pin=pin)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        timeout=120,
    )
    assert done.returncode == status
    assert gone([int(word) for word in done.stdout.split()])
