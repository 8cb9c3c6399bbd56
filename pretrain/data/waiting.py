"""The time that training waits for what the host prepares."""

import time
from types import TracebackType


class Waiting:
    """A clock that runs while the training process waits for data.

    Waiting for workers and drawing numbers count. Work that is handed to a GPU, uploads among it,
    does not: where the host waits there, it waits for the step before.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        """Time so far."""
        self._since_s = 0.0

    def __enter__(self) -> None:
        self._since_s = time.monotonic()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.seconds += time.monotonic() - self._since_s
