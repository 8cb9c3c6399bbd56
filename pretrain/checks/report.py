"""The lines of JSON that the checks print: one before each check and one after it.

A check that raises has failed, and the next one goes on. After an error of CUDA nothing that this
process computes can be trusted, so the command ends; it is started again with --skip.
"""

import json
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, TypeVar

Status = Literal["passed", "failed", "skipped", "measured"]
Fact = float | str
Setting = TypeVar("Setting")

EXIT_CUDA_ERROR = 3
"""Exit status when an error of CUDA has made the process useless."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Findings of a check."""

    status: Status
    reason: str = ""
    """Reason of a failure, or of a check that is left out."""
    facts: dict[str, Fact] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Line:
    """A check's name, the group in which it is listed, and its function."""

    name: str
    group: str
    seconds: float
    """Expected seconds on a GPU."""

    def listed(self) -> str:
        """Return the line of --list."""
        return json.dumps({"check": self.name, "group": self.group, "seconds": self.seconds})


def skipped(reason: str) -> Outcome:
    """Return the outcome of a check that makes no sense here."""
    return Outcome(status="skipped", reason=reason)


def judged(failures: Sequence[str], facts: dict[str, Fact]) -> Outcome:
    """Return the outcome of comparisons: failed if there is any failure."""
    if failures:
        return Outcome(status="failed", reason="; ".join(failures), facts=facts)
    return Outcome(status="passed", facts=facts)


def run_check(line: Line, check: Callable[[], Outcome], write: Callable[[str], object]) -> bool:
    """Run one check and write its two lines; return whether the process can go on."""
    write(json.dumps({"begin": line.name}))
    started_s = time.monotonic()
    usable = True
    try:
        outcome = check()
    except Exception as error:  # whatever a check meets is what it reports
        traceback.print_exc(file=sys.stderr)
        outcome = Outcome(status="failed", reason=describe(error))
        usable = not is_cuda_error(error)
    content = {
        "check": line.name,
        "group": line.group,
        "status": outcome.status,
        "seconds": round(time.monotonic() - started_s, 3),
        "reason": outcome.reason,
        "facts": {name: plain(value) for name, value in outcome.facts.items()},
    }
    write(json.dumps(content))
    return usable


def describe(error: Exception) -> str:
    """Return type and first line of an error."""
    first = str(error).strip().partition("\n")[0]
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def is_cuda_error(error: BaseException | None) -> bool:
    """Return whether an error, or one that has caused it, comes from CUDA and lasts.

    Memory that runs out is no such error: later kernels run as before.
    """
    if error is None:
        return False
    name = type(error).__name__
    lasting = name == "AcceleratorError" or "CUDA error" in str(error)
    own = lasting and name != "OutOfMemoryError"
    return own or is_cuda_error(error.__cause__) or is_cuda_error(error.__context__)


def plain(value: Fact) -> Fact | None:
    """Return a value that JSON has; it knows no infinite or undefined numbers."""
    if isinstance(value, float) and value - value != 0:
        return str(value)
    return value
