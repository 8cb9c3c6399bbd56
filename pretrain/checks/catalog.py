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
COMPILED = ("moco", "swav", "loocpp")
"""Methods with a queue and a momentum encoder, with views of two sizes, with several heads."""
STEPS = {"moco": 12, "jcl": 20, "simsiam": 12, "byol": 15, "lorac": 25}
"""Methods whose steps are reported -> expected seconds."""
SCALED = ("moco", "byol")
"""Methods with ShuffleBN and with synchronized batch norm."""
SHARED = ("synchronized batch norm", "gathered rows", "shuffled batch norm")
"""Computations that processes share."""


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


def _without_waits(method: str, place: "Place") -> Outcome:
    from pretrain.checks.waits import without_waits

    return without_waits(place, method)


def _views_from_memory(place: "Place") -> Outcome:
    from pretrain.checks.views import views_from_memory

    return views_from_memory(place)


def _views_from_files(place: "Place") -> Outcome:
    from pretrain.checks.views import views_from_files

    return views_from_files(place)


def _resumed(recipe: str, options: tuple[str, ...], place: "Place") -> Outcome:
    from pretrain.checks.resume import resumed

    return resumed(place, recipe, *options)


def _compiled(method: str, place: "Place") -> Outcome:
    from pretrain.checks.compilation import compiled

    return compiled(place, method)


def _shared_batch(part: str, place: "Place") -> Outcome:
    from pretrain.checks.processes import shared_batch

    return shared_batch(place, part)


def _step_report(method: str, place: "Place") -> Outcome:
    from pretrain.checks.steps import step_report

    return step_report(place, method)


def _scaling(method: str, place: "Place") -> Outcome:
    from pretrain.checks.scaling import scaling

    return scaling(place, method)


def method_checks(method: str) -> list[Check]:
    """Return the checks of one method."""
    return [
        check(f"{method} against the CPU", "methods", 2, partial(_against_cpu, method)),
        check(f"{method} in bfloat16", "methods", 0.5, partial(_in_bfloat16, method)),
        check(f"{method} without waits", "methods", 0.5, partial(_without_waits, method)),
    ]


def other_checks() -> list[Check]:
    """Return the checks that are not of each method."""
    lars = ("--optimizer", "lars", "--learning-rate", "1")
    return [
        check("views from memory", "views", 3, _views_from_memory),
        check("views from files", "views", 3, _views_from_files),
        check("moco resumed", "resume", 3, partial(_resumed, "moco/smoke", ())),
        check("byol with LARS resumed", "resume", 3, partial(_resumed, "byol/smoke", lars)),
        *[
            check(f"{method} compiled", "compile", 25, partial(_compiled, method))
            for method in COMPILED
        ],
        *[
            check(f"{part} over processes", "processes", 5, partial(_shared_batch, part))
            for part in SHARED
        ],
        *[
            check(f"step of {method}", "steps", seconds, partial(_step_report, method))
            for method, seconds in STEPS.items()
        ],
        *[
            check(f"scaling of {method}", "steps", 20, partial(_scaling, method))
            for method in SCALED
        ],
    ]


def all_checks() -> list[Check]:
    """Return all checks in their order."""
    return [each for method in LEARNING for each in method_checks(method)] + other_checks()
