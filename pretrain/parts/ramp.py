"""Growth of a weight over a run."""

from typing import Literal

Ramp = Literal["constant", "linear"]


def ramp(kind: Ramp, progress: float) -> float:
    """Return the factor of a weight, 0 to 1, at `progress`, the share of the run (0 to 1)."""
    match kind:
        case "constant":
            return 1.0
        case "linear":
            return progress
