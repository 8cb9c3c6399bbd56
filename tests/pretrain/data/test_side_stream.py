"""The order of work on two streams, noted by stand-ins; the views themselves on a CPU."""

import gc
import weakref
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
import torch

from pretrain.data.side_stream import Array, made_aside, pack, unpack

CUDA = torch.device("cuda")


class Batch:
    """Input of a step; an object that a weak reference can follow."""


class NotedStream:
    """A stream whose work is a list of words, up to which an event is a mark."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.work: list[str] = []

    def record_event(self) -> Any:
        return f"{self.name} {len(self.work)}"

    def wait_event(self, event: Any) -> None:
        self.work.append(f"wait for {event}")


class Streams:
    """Both streams, and which one is given work."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.side, self.training = NotedStream("side"), NotedStream("training")
        self.current = self.training
        monkeypatch.setattr(torch.cuda, "Stream", lambda _: self.side)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda _: self.training)
        monkeypatch.setattr(torch.cuda, "stream", self.enter)

    @contextmanager
    def enter(self, stream: NotedStream) -> Iterator[None]:
        self.current = stream
        yield
        self.current = self.training

    def train(self, num_steps: int) -> None:
        """Train on batches; note what each stream is given."""

        def batches() -> Generator[int, None, None]:
            for step in range(num_steps):
                self.current.work.append(f"make {step}")
                yield step

        for step in made_aside(batches(), CUDA):
            self.current.work.append(f"train {step}")


@pytest.fixture
def streams(monkeypatch: pytest.MonkeyPatch) -> Streams:
    return Streams(monkeypatch)


def test_a_batch_is_made_aside_beside_the_step_before_and_trained_on_when_it_is_ready(
    streams: Streams,
) -> None:
    streams.train(4)
    assert streams.training.work[:6] == [
        *("wait for side 1", "train 0"),
        *("wait for side 2", "train 1"),
        *("wait for side 4", "train 2"),
    ]
    assert streams.side.work[:6] == [
        *("make 0", "make 1"),
        *("wait for training 2", "make 2"),  # memory of batch 0, which the second word trains on
        *("wait for training 4", "make 3"),
    ]


@pytest.mark.usefixtures("streams")
def test_a_batch_is_held_until_the_side_stream_has_waited_for_its_step() -> None:
    alive: list[list[bool]] = []
    followed: list[weakref.ref[Batch]] = []

    def batches() -> Generator[Batch, None, None]:
        for _ in range(4):
            gc.collect()
            alive.append([reference() is not None for reference in followed])
            batch = Batch()
            followed.append(weakref.ref(batch))
            yield batch
            del batch

    for batch in made_aside(batches(), CUDA):
        del batch
    assert alive[1:] == [[True], [False, True], [False, False, True]]


def test_a_cpu_makes_the_same_batches_and_ends_the_generator() -> None:
    ended = []

    def batches() -> Generator[int, None, None]:
        try:
            yield from range(3)
        finally:
            ended.append(True)

    made = made_aside(batches(), torch.device("cpu"))
    assert [next(made), next(made)] == [0, 1]
    made.close()
    assert ended


ARRAYS: list[Array] = [
    np.arange(5),
    np.array([[0.1, 0.2, 0.3]], dtype=np.float32),
    np.zeros((0, 4), dtype=np.float32),
    np.arange(6).reshape(2, 3).T,  # not contiguous
    np.zeros(0, dtype=np.int64),
    np.array([7], dtype=np.float32),
    np.array([2**40]),
]


def test_arrays_come_back_with_values_types_and_shapes() -> None:
    found = unpack(pack(ARRAYS), torch.device("cpu"))
    for array, tensor in zip(ARRAYS, found, strict=True):
        expected = torch.from_numpy(np.ascontiguousarray(array))
        assert tensor.dtype == expected.dtype
        assert torch.equal(tensor, expected)
