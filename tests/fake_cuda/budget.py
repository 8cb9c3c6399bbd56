"""The waits for the device that are allowed, from budget.yaml."""

from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.fake_cuda.watch import Wait


@cache
def load_budget() -> dict[str, list[dict[str, Any]]]:
    """Return the allowances of all that is measured, by its name."""
    text = Path(__file__).with_name("budget.yaml").read_text()
    budget: dict[str, list[dict[str, Any]]] = yaml.safe_load(text)
    return budget


def allowed_waits(measured: str, case: str = "", *, num_passes: int = 0) -> Counter[Wait]:
    """Return the waits of a case, with `num_passes` through layers that wait in each pass."""
    allowed: Counter[Wait] = Counter()
    for entry in load_budget().get(measured, []):
        waits = entry.get("waits", 0)
        number = waits.get(case, 0) if isinstance(waits, dict) else waits
        number += entry.get("of_each_pass", 0) * num_passes
        if number:
            allowed[Wait(entry["place"], entry["kind"])] += number
    return allowed
