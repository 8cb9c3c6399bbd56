"""Reasons why a result may not stand beside a paper's numbers."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from benchmarks.pages.records import SMALL_DATA, Failure, Model, Result

SCHEDULES = ("paper", "short", "smoke")


@dataclass(frozen=True)
class OtherProtocol:
    """Protocol of a result where the page expects another one; all names are without version."""

    name: str
    expected: tuple[str, ...] = ()
    """Protocols of the paper's rows of the same recipe; empty if no row has one of its own."""

    @property
    def words(self) -> str:
        """Return words such as "protocol a instead of b"."""
        instead = f" instead of {', '.join(self.expected)}" if self.expected else ""
        return f"protocol {self.name}{instead}"


ProtocolCheck = Callable[[Model, str, str], OtherProtocol | None]
"""Function of a backbone, a task and a protocol without version. It returns that protocol if the
page expects another one, and None if the page expects this one."""


@dataclass(frozen=True, kw_only=True)
class Reasons:
    """Differences from the paper's schedule, protocol and data; no difference by default."""

    schedule: str = "paper"
    altered: bool = False
    """The protocol has another hash than the paper's, at the paper's schedule."""
    data: str = ""
    """Words on small or incomplete data; empty for the published data."""
    protocol: OtherProtocol | None = None

    def words(self, *, schedule: bool = True) -> tuple[str, ...]:
        """Return words for each reason, on request without the schedule; empty if there is none."""
        words = [schedule_words(self.schedule)] if schedule and self.schedule != "paper" else []
        words += ["altered protocol"] if self.altered else []
        words += [self.data] if self.data else []
        return (*words, self.protocol.words) if self.protocol else tuple(words)

    @property
    def rank(self) -> tuple[int, tuple[str, ...]]:
        """Return the sort key: schedules in order, then shares of the length."""
        known = self.schedule in SCHEDULES
        return SCHEDULES.index(self.schedule) if known else len(SCHEDULES), self.words()

    @property
    def of_failures(self) -> "Reasons":
        """Return those of the reasons that failure files show too: schedule and protocol."""
        return replace(self, altered=False, data="")


COMPARABLE = Reasons()
"""No reason: the result may stand beside the paper's numbers."""


def reasons_of(result: Result, check: ProtocolCheck | None = None) -> Reasons:
    """Return the reasons of a result.

    check: if None, every protocol is allowed.
    """
    data = SMALL_DATA[result.small] if result.small else ""
    name = without_version(result.protocol)
    return Reasons(
        schedule=result.schedule,
        altered=result.schedule == "paper" and result.protocol_hash != result.paper_hash,
        data=data or ("incomplete data" if result.tolerated else ""),
        protocol=check(result.model, result.task, name) if check else None,
    )


def reasons_of_failure(
    failure: Failure, model: Model, check: ProtocolCheck | None = None
) -> Reasons:
    """Return the reasons that a failure file shows: schedule and protocol, but not the data."""
    return Reasons(
        schedule=failure.schedule,
        protocol=check(model, failure.task, without_version(failure.protocol)) if check else None,
    )


def schedule_words(schedule: str) -> str:
    """Return words such as "smoke schedule", or "0.02-length schedule" for a share."""
    return f"{schedule} schedule" if schedule in SCHEDULES else f"{schedule}-length schedule"


def without_version(protocol: str) -> str:
    """Return a protocol's name without the version: "lorac-2021" of "lorac-2021/1"."""
    return protocol.partition("/")[0]
