"""What the runs of one mean must share: all that a note below a table tells of them.

Runs of one backbone, task and protocol that differ in it stand in rows of their own.
"""

from collections.abc import Sequence

from benchmarks.pages.records import SMALL_DATA, Result

Conditions = tuple[str, ...]
"""Words for each thing that must be equal, the departures last and in one."""


def conditions(result: Result) -> Conditions:
    """Return how a result was computed, and on what."""
    return (
        f"features in {result.features_in}",
        f"engine {result.engine}",
        processes_words(result.num_processes),
        SMALL_DATA.get(result.small, "full data"),
        "; ".join(tolerated_words(result)) or "nothing tolerated",
        "; ".join(result.departures) or "no departure",
    )


def processes_words(num_processes: int) -> str:
    """Like "2 processes"."""
    return "1 process" if num_processes == 1 else f"{num_processes} processes"


def tolerated_words(result: Result) -> list[str]:
    """Return a note for each data set that is not whole."""
    return [
        f"{count} missing, surplus or unreadable images or annotations of {key} tolerated"
        for key, count in result.tolerated
    ]


def parted(results: Sequence[Result]) -> dict[str, list[Result]]:
    """Return the results that may share a mean, by what sets them apart from the first group.

    The first group, under an empty name, is the largest; of equally large ones that with the
    fewest departures.
    """
    groups: dict[Conditions, list[Result]] = {}
    for result in results:
        groups.setdefault(conditions(result), []).append(result)
    first, *others = sorted(groups, key=lambda told: _rank(told, groups[told]))
    brief = [_differences(told[:-1], first[:-1]) for told in others]
    names = [
        words if words and brief.count(words) == 1 else _differences(told, first)
        for told, words in zip(others, brief, strict=True)
    ]
    return {"": groups[first]} | dict(zip(names, (groups[told] for told in others), strict=True))


def _rank(told: Conditions, members: Sequence[Result]) -> tuple[int, int, Conditions]:
    return -len(members), len(members[0].departures), told


def _differences(told: Conditions, first: Conditions) -> str:
    """Return what only the first argument tells."""
    return ", ".join(mine for mine, other in zip(told, first, strict=True) if mine != other)
