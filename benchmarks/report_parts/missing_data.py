"""Commands and advice that get absent data sets."""

import shlex
from collections.abc import Sequence

from transfer.datasets.catalog import DATASETS


def how_to_get(keys: Sequence[str]) -> list[str]:
    """Return the command that gets the data sets, and advice on those without a source."""
    known = [key for key in keys if key in DATASETS]
    sourced = [key for key in known if DATASETS[key].sources]
    advice = [DATASETS[key].how_to_get for key in known if not DATASETS[key].sources]
    if sourced:
        words = ["python", "-m", "transfer", "get-data", *sourced, "--data", "DATA"]
        return [shlex.join(words), *advice]
    return advice
