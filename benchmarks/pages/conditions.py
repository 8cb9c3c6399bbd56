"""Conditions that the runs of one mean must share; the notes below a table name them.

Runs of one backbone, task and protocol under different conditions stand in different rows.
"""

from collections.abc import Sequence
from typing import NamedTuple

from benchmarks.pages.records import SMALL_DATA, Result


class Conditions(NamedTuple):
    """Words for each condition that must be equal."""

    features: str
    engine: str
    processes: str
    data: str
    tolerated: str
    crops: str
    departures: str


def conditions(result: Result) -> Conditions:
    """Return the conditions under which a result was computed, and its data."""
    return Conditions(
        features=f"features in {result.features_in}",
        engine=f"engine {result.engine}",
        processes=processes_words(result),
        data=SMALL_DATA.get(result.small, "full data"),
        tolerated="; ".join(tolerated_words(result)) or "nothing tolerated",
        crops=crops_version(result) or "crops/1",  # as old records, which do not say it
        departures="; ".join(result.departures) or "no departure",
    )


def processes_words(result: Result) -> str:
    """Return words such as "1 process" or "2 processes with naiveSyncBN"."""
    if result.num_processes == 1:
        return "1 process"
    norm = f" with {result.shared_norm}" if result.shared_norm else ""
    return f"{result.num_processes} processes{norm}"


def crops_version(result: Result) -> str:
    """Return the version of the training crops, such as "crops/2"; empty if the record has none."""
    return str(result.details.get("crops", ""))


def tolerated_words(result: Result) -> list[str]:
    """Return a note for each incomplete data set."""
    return [
        f"{count} missing, surplus or unreadable images or annotations of {key} tolerated"
        for key, count in result.tolerated
    ]


def group_by_conditions(results: Sequence[Result]) -> dict[str, list[Result]]:
    """Return the groups of results that may share a mean, by their differences from the first.

    The first group is the largest; among equally large groups, the one with the fewest departures.
    Its name is empty.
    """
    groups: dict[Conditions, list[Result]] = {}
    for result in results:
        groups.setdefault(conditions(result), []).append(result)
    first, *others = sorted(groups, key=lambda common: _rank(common, groups[common]))
    # departures are long: a group's name holds them only if nothing else names it uniquely
    brief = [_differences(common._replace(departures=first.departures), first) for common in others]
    names = [
        words if words and brief.count(words) == 1 else _differences(common, first)
        for common, words in zip(others, brief, strict=True)
    ]
    return {"": groups[first]} | dict(
        zip(names, (groups[common] for common in others), strict=True)
    )


def _rank(common: Conditions, members: Sequence[Result]) -> tuple[int, int, Conditions]:
    return -len(members), len(members[0].departures), common


def _differences(common: Conditions, first: Conditions) -> str:
    """Return the conditions in which a group differs from the first one."""
    return ", ".join(mine for mine, other in zip(common, first, strict=True) if mine != other)
