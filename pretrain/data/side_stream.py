"""Batches made on a stream of their own, while a GPU still trains on the batch before."""

from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, closing
from typing import Protocol, TypeVar

import torch

Made = TypeVar("Made")


class Stream(Protocol):
    """A queue of a GPU's work, such as torch.cuda.Stream; waits are the GPU's, not the caller's."""

    def record_event(self) -> torch.cuda.Event:
        """Return a mark behind all work that the stream has been given."""

    def wait_event(self, event: torch.cuda.Event) -> None:
        """Hold back later work until the mark is passed."""


def made_aside(
    batches: Generator[Made, None, None], device: torch.device
) -> Generator[Made, None, None]:
    """Yield batches that a GPU makes while it trains; a CPU makes them as they are asked for.

    Ask for a batch when the work on the one before has been given to the current stream. The memory
    of a batch is used again for the next but one.
    """
    with closing(batches):
        if device.type == "cuda":
            side, training = torch.cuda.Stream(device), torch.cuda.current_stream(device)
            yield from alternate(batches, side, training, lambda: torch.cuda.stream(side))
        else:
            yield from batches


def alternate(
    batches: Generator[Made, None, None],
    side: Stream,
    training: Stream,
    enter_side: Callable[[], AbstractContextManager[object]],
) -> Generator[Made, None, None]:
    """Yield batches that are made on the side stream, and that the training stream waits for.

    enter_side makes the side stream the current one.
    """
    # torch gives the memory of a batch to later work of the side stream, but knows nothing of the
    # step that reads the batch: so this holds the batch until the side stream has waited for it
    held: list[Made] = []
    finished: list[torch.cuda.Event] = []
    while True:
        if len(held) == 2:
            side.wait_event(finished.pop(0))
            held.pop(0)
        with enter_side():
            made = next(batches, None)
        if made is None:
            return
        held.append(made)
        training.wait_event(side.record_event())
        yield made
        finished.append(training.record_event())
