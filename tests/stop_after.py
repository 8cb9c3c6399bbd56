"""A request to stop that comes during a step of a pre-training run."""

from pretrain.running.stop import StopRequest


class StopAfter(StopRequest):
    """A signal that comes during a step of a run on one process."""

    def __init__(self, num_steps: int) -> None:
        super().__init__()
        self.left = num_steps

    def came(self) -> bool:
        """Return whether this is the step."""
        self.left -= 1
        return self.left == 0
