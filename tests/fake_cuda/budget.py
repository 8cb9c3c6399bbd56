"""The waits for the device that are allowed, from budget.yaml."""

from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from tests.fake_cuda.watch import Wait


@cache
def load_budget() -> dict[str, dict[str, dict[str, Any]]]:
    """Return what is measured -> place -> kind, reason and waits."""
    text = Path(__file__).with_name("budget.yaml").read_text()
    budget: dict[str, dict[str, dict[str, Any]]] = yaml.safe_load(text)
    return budget


def allowed_waits(measured: str, case: str, *, num_passes: int = 0) -> Counter[Wait]:
    """Return the waits of a case, with `num_passes` through layers that wait in each pass."""
    allowed: Counter[Wait] = Counter()
    for place, entry in load_budget().get(measured, {}).items():
        number = entry.get("of_each_pass", 0) * num_passes + entry.get("waits", {}).get(case, 0)
        if number:
            allowed[Wait(place, entry["kind"])] = number
    return allowed
