"""Reasons why a result may not stand beside a paper's numbers."""

from collections.abc import Callable
from typing import NamedTuple

from benchmarks.pages.records import SMALL_DATA, Failure, Model, Result

SCHEDULES = ("paper", "short", "smoke")


ProtocolCheck = Callable[[Model, str, str], str]
"""Function of a backbone, a task and a protocol without version. It returns words on that protocol
if the page expects another one, and nothing if the page expects this one."""


class Reasons(NamedTuple):
    """Differences from the paper's schedule, protocol and data; no difference by default."""

    schedule: str = "paper"
    altered: str = ""
    """Words if the protocol has another hash than the paper's, at the paper's schedule."""
    data: str = ""
    """Words on small or incomplete data; empty for the published data."""
    protocol: str = ""
    """Words on a protocol where the page expects another one."""

    def words(self, *, schedule: bool = True) -> tuple[str, ...]:
        """Return words for each reason, on request without the schedule; empty if there is none."""
        length = schedule_words(self.schedule) if schedule and self.schedule != "paper" else ""
        return tuple(word for word in (length, *self[1:]) if word)

    @property
    def rank(self) -> tuple[int, tuple[str, ...]]:
        """Return the sort key: schedules in order, then shares of the length."""
        known = self.schedule in SCHEDULES
        return SCHEDULES.index(self.schedule) if known else len(SCHEDULES), self.words()

    @property
    def of_failures(self) -> "Reasons":
        """Return those of the reasons that failure files show too: schedule and protocol."""
        return Reasons(schedule=self.schedule, protocol=self.protocol)


COMPARABLE = Reasons()
"""No reason: the result may stand beside the paper's numbers."""


def reasons_of(result: Result, check: ProtocolCheck | None = None) -> Reasons:
    """Return the reasons of a result.

    check: if None, every protocol is allowed.
    """
    altered = result.schedule == "paper" and result.protocol_hash != result.paper_hash
    name = without_version(result.protocol)
    return Reasons(
        schedule=result.schedule,
        altered="altered protocol" if altered else "",
        data=SMALL_DATA.get(result.small, "incomplete data" if result.tolerated else ""),
        protocol=check(result.model, result.task, name) if check else "",
    )


def reasons_of_failure(
    failure: Failure, model: Model, check: ProtocolCheck | None = None
) -> Reasons:
    """Return the reasons that a failure file shows: schedule and protocol, but not the data."""
    return Reasons(
        schedule=failure.schedule,
        protocol=check(model, failure.task, without_version(failure.protocol)) if check else "",
    )


def schedule_words(schedule: str) -> str:
    """Return words such as "smoke schedule", or "0.02-length schedule" for a share."""
    return f"{schedule} schedule" if schedule in SCHEDULES else f"{schedule}-length schedule"


def without_version(protocol: str) -> str:
    """Return a protocol's name without the version: "lorac-2021" of "lorac-2021/1"."""
    return protocol.partition("/")[0]
