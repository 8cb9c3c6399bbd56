"""A check, and its answer in one line of JSON."""

import json
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

Status = Literal["passed", "failed", "skipped", "measured"]
Facts = dict[str, float | str]
"""Differences with their bounds, rates, milliseconds, by name."""
DEAD_DEVICE = 3
"""Exit status after an error from which the process's CUDA context does not recover."""


@dataclass(frozen=True, kw_only=True)
class Place:
    """Device that is checked, and a folder for the files of a check."""

    device: Literal["cuda", "cpu"]
    folder: Path

    @property
    def small(self) -> bool:
        """Return True where networks and batches are small: on a CPU."""
        return self.device == "cpu"

    def require_cuda(self, reason: str) -> None:
        """Raise NotCheckedError on a CPU."""
        if self.device == "cpu":
            raise NotCheckedError(f"needs CUDA: {reason}")


@dataclass(frozen=True, kw_only=True)
class Check:
    """A named check; `run` returns its facts."""

    name: str
    group: str
    seconds: float
    """Expected time on a GPU."""
    run: Callable[[Place], Facts]
    measures: bool = False
    """True if its facts are rates, which neither pass nor fail."""


class NotCheckedError(Exception):
    """Reason why a check cannot run on this machine."""


class CheckFailedError(Exception):
    """Differences above their bounds, with the facts that show them."""

    def __init__(self, reason: str, facts: Mapping[str, float | str]) -> None:
        super().__init__(reason)
        self.facts = dict(facts)


@dataclass(frozen=True, kw_only=True)
class Answer:
    """Answer of one check."""

    check: str
    group: str
    status: Status
    seconds: float
    reason: str = ""
    facts: Facts = field(default_factory=dict)


def run_checks(
    checks: Sequence[Check], place: Place, write: Callable[[str], object]
) -> Iterator[Answer]:
    """Run checks one by one; write a line of JSON before each of them, and its answer after it.

    A dead device is no longer used: its answer is the last.
    """
    for check in checks:
        write(json.dumps({"begin": check.name}))
        answer, dead = answer_of(check, place)
        write(json.dumps(asdict(answer)))
        yield answer
        if dead:
            return


def answer_of(check: Check, place: Place) -> tuple[Answer, bool]:
    """Run a check; return its answer, and whether its error leaves the CUDA device unusable.

    An exception is the reason of a failed check; its traceback goes to stderr.
    """
    start, reason, dead = time.monotonic(), "", False
    status: Status = "measured" if check.measures else "passed"
    facts: Facts = {}
    try:
        with lines_of_tasks_on_stderr():
            facts = check.run(place)
    except NotCheckedError as why:
        status, reason = "skipped", str(why)
    except CheckFailedError as failure:
        status, reason, facts = "failed", str(failure), failure.facts
    except Exception as error:
        traceback.print_exc(file=sys.stderr)
        status, reason, dead = "failed", first_line(error), leaves_device_dead(error)
    seconds = round(time.monotonic() - start, 3)
    answer = Answer(
        check=check.name,
        group=check.group,
        status=status,
        seconds=seconds,
        reason=reason,
        facts=finite_numbers(facts),
    )
    return answer, dead


@contextmanager
def lines_of_tasks_on_stderr() -> Iterator[None]:
    """Send what a check prints to stderr: stdout carries only answers."""
    before, sys.stdout = sys.stdout, sys.stderr
    try:
        yield
    finally:
        sys.stdout = before


def first_line(error: Exception) -> str:
    """Return the error's type and the first line of its text."""
    lines = str(error).splitlines()
    return f"{type(error).__name__}: {lines[0] if lines else 'no text'}"


def leaves_device_dead(error: Exception) -> bool:
    """Return whether an error is CUDA's own, after which every later call fails as well.

    Lack of memory is none of these.
    """
    kinds = {kind.__name__ for kind in type(error).__mro__}
    if "OutOfMemoryError" in kinds:
        return False
    return "AcceleratorError" in kinds or "CUDA error" in str(error)


def finite_numbers(facts: Mapping[str, float | str]) -> Facts:
    """Return the facts with infinities and NaN as words, which JSON does not know as numbers."""
    return {
        name: value if isinstance(value, str) or abs(value) < float("inf") else str(value)
        for name, value in facts.items()
    }
