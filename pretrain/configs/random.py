"""Settings of the random baseline."""

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class RandomConfig:
    """No settings: the seed of a run decides everything."""
