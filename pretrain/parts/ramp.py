"""How a weight grows over a run."""

from typing import Literal

Ramp = Literal["constant", "linear"]


def ramp(kind: Ramp, progress: float) -> float:
    """Factor of a weight, 0 to 1, at `progress`, the share of the run done (0 to 1)."""
    match kind:
        case "constant":
            return 1.0
        case "linear":
            return progress
