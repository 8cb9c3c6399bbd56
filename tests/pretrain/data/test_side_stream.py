"""The order of work on two streams, noted by stand-ins; the views themselves on a CPU."""

import gc
import weakref
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from pretrain.data.side_stream import alternate, made_aside


class Batch:
    """What a step reads; an object that a weak reference can follow."""


class NotedStream:
    """A stream whose work is a list of words, up to which an event is a mark."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.work: list[str] = []

    def record_event(self) -> Any:
        return f"{self.name} {len(self.work)}"

    def wait_event(self, event: Any) -> None:
        self.work.append(f"wait for {event}")


def train(num_steps: int) -> tuple[NotedStream, NotedStream]:
    """Both streams after the training on batches, which notes what each stream is given."""
    side, training = NotedStream("side"), NotedStream("training")
    current = training

    @contextmanager
    def enter_side() -> Iterator[None]:
        nonlocal current
        current = side
        yield
        current = training

    def batches() -> Generator[int, None, None]:
        for step in range(num_steps):
            current.work.append(f"make {step}")
            yield step

    for step in alternate(batches(), side, training, enter_side):
        current.work.append(f"train {step}")
    return side, training


def test_batches_are_made_on_the_side_and_trained_on_when_they_are_ready() -> None:
    _, training = train(3)
    assert training.work == [
        *("wait for side 1", "train 0"),
        *("wait for side 2", "train 1"),
        *("wait for side 4", "train 2"),
    ]


def test_a_batch_is_made_beside_the_step_before_and_after_the_one_before_that() -> None:
    side, _ = train(4)
    assert side.work[:6] == [
        *("make 0", "make 1"),
        *("wait for training 2", "make 2"),  # memory of batch 0, which the second word trains on
        *("wait for training 4", "make 3"),
    ]


def test_a_batch_is_held_until_the_side_stream_has_waited_for_its_step() -> None:
    side, training = NotedStream("side"), NotedStream("training")
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

    for batch in alternate(batches(), side, training, lambda: torch.no_grad()):
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
