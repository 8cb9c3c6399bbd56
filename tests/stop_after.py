"""A request to stop that comes during a step of a pre-training run."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch


@contextmanager
def stop_after(num_steps: int) -> Iterator[None]:
    """A signal comes during this step of a run on one process."""
    answers = iter([*[False] * (num_steps - 1), True])
    with patch("pretrain.running.stop.is_requested", lambda: next(answers)):
        yield
