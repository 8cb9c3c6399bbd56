"""All checks by name, in the order in which they run; reading this needs no torch."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from pretrain.checks.report import Line, Outcome
from pretrain.recipes import RECIPES

if TYPE_CHECKING:
    from pretrain.checks.place import Place

LEARNING = tuple(
    name.removesuffix("/smoke")
    for name in RECIPES
    if name.endswith("/smoke") and name != "random/smoke"
)
"""Methods that learn, each of which has a smoke recipe."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """A check and what is printed about it."""

    line: Line
    run: Callable[["Place"], Outcome]


def check(name: str, group: str, seconds: float, run: Callable[["Place"], Outcome]) -> Check:
    """Return a check that takes so many seconds on a GPU."""
    return Check(line=Line(name=name, group=group, seconds=seconds), run=run)


# each function imports what it runs, since that imports torch
def _against_cpu(method: str, place: "Place") -> Outcome:
    from pretrain.checks.methods import against_cpu

    return against_cpu(place, method)


def _in_bfloat16(method: str, place: "Place") -> Outcome:
    from pretrain.checks.methods import in_bfloat16

    return in_bfloat16(place, method)


def method_checks(method: str) -> list[Check]:
    """Return the checks of one method."""
    return [
        check(f"{method} against the CPU", "methods", 2, partial(_against_cpu, method)),
        check(f"{method} in bfloat16", "methods", 0.5, partial(_in_bfloat16, method)),
    ]


def all_checks() -> list[Check]:
    """Return all checks in their order."""
    return [each for method in LEARNING for each in method_checks(method)]
