"""Which results may share a table, a column, a mean.

A block is a table of rows that may be compared with each other. Results that leave the paper's
protocol, length or data are in another block than those that keep them. Within a block, one column
holds one protocol hash and one state of the data. Runs that must not share a mean stand in
different rows.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import NamedTuple

from benchmarks.pages.records import SMALL_DATA, Failure, Model, Result, grouped
from transfer import record

SCHEDULES = ("paper", "short", "smoke")
Column = tuple[str, str]
"""Task id, and protocol without its version: another version is another hash."""
ProtocolCheck = Callable[[Model, str, str], str]
"""Function of a backbone, a task and a protocol without version. It returns words if the page
expects another protocol, and nothing if it expects this one."""


class Reasons(NamedTuple):
    """Differences from the paper's schedule, protocol and data, in words; none by default."""

    schedule: str = "paper"
    altered: str = ""
    """Not empty if the protocol has another hash than the paper's, at the paper's schedule."""
    data: str = ""
    """Words on small or incomplete data; empty for the published data."""
    protocol: str = ""
    """Words on a protocol that the page does not expect; empty for an expected one."""

    def words(self) -> tuple[str, ...]:
        """Return words for each reason; empty if there is none."""
        length = schedule_words(self.schedule) if self.schedule != "paper" else ""
        return tuple(filter(None, (length, *self[1:])))

    @property
    def rank(self) -> tuple[int, tuple[str, ...]]:
        """Return the sort key: schedules in order, then shares of the length."""
        known = self.schedule in SCHEDULES
        return SCHEDULES.index(self.schedule) if known else len(SCHEDULES), self.words()


COMPARABLE = Reasons()
"""No reason: the result may stand beside the paper's numbers."""


def reasons_of(
    entry: Result | Failure, check: ProtocolCheck | None = None, model: Model | None = None
) -> Reasons:
    """Return why a result may not stand beside a paper's numbers.

    Of a failure, whose backbone is `model`, schedule and protocol only: its file shows no more.
    check: if None, every protocol is allowed.
    """
    if isinstance(entry, Failure):
        words = check(model or Model(name=""), *column_of(entry)) if check else ""
        return Reasons(schedule=entry.schedule, protocol=words)
    altered = entry.schedule == "paper" and entry.protocol_hash != entry.paper_hash
    data = SMALL_DATA[entry.small] if entry.small else "incomplete data" if entry.tolerated else ""
    return Reasons(
        schedule=entry.schedule,
        altered="altered protocol" * altered,
        data=data,
        protocol=check(entry.model, *column_of(entry)) if check else "",
    )


def schedule_words(schedule: str) -> str:
    """Return words such as "smoke schedule", or "0.02-length schedule" for a share."""
    return f"{schedule} schedule" if schedule in SCHEDULES else f"{schedule}-length schedule"


def without_version(protocol: str) -> str:
    """Return a protocol's name without the version: "lorac-2021" of "lorac-2021/1"."""
    return protocol.partition("/")[0]


def column_of(entry: Result | Failure) -> Column:
    """Return the column of a result or a failure."""
    return entry.task, without_version(entry.protocol)


class Conditions(NamedTuple):
    """Words for each condition that the runs of one mean must share."""

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
        features=f"features in {record.features_in(result.record)}",
        engine=f"engine {result.engine}",
        processes=processes_words(result),
        data=SMALL_DATA.get(result.small, "full data"),
        tolerated="; ".join(tolerated_words(result)) or "nothing tolerated",
        crops=str(result.details.get("crops") or "crops/1"),  # old records do not say it
        departures="; ".join(result.departures) or "no departure",
    )


def processes_words(result: Result) -> str:
    """Return words such as "1 process" or "2 processes with naiveSyncBN"."""
    stored = record.conditions(result.record)
    norm = f" with {stored['shared_norm']}" if stored["shared_norm"] else ""
    return f"{stored['num_processes']} process{'es' * (stored['num_processes'] > 1)}{norm}"


def tolerated_words(result: Result) -> list[str]:
    """Return a note for each incomplete data set."""
    return [
        f"{count} missing, surplus, repeated or unreadable images or annotations of {key} tolerated"
        for key, count in result.tolerated
    ]


@dataclass(frozen=True, kw_only=True)
class Block:
    """Rows that may be compared with each other."""

    reasons: Reasons = COMPARABLE
    """Reasons why the rows may not be compared with the paper."""
    version: int = 0
    """Number of newer blocks with the same reasons and other protocol hashes or data."""
    done: Mapping[tuple[Model, Column], tuple[Result, ...]]
    """Results of each entry, sorted by seed."""
    failed: Mapping[tuple[Model, Column], tuple[Failure, ...]]
    """Failures of each entry, sorted by seed; without cells that succeeded later."""

    @property
    def comparable(self) -> bool:
        """Return whether the rows may be compared with the paper."""
        return self.reasons == COMPARABLE

    @property
    def models(self) -> tuple[Model, ...]:
        """Return the rows, sorted by name; random initializations come last."""
        rows = {model for model, _ in (*self.done, *self.failed)}
        return tuple(sorted(rows, key=lambda model: (model.untrained, model)))

    @property
    def columns(self) -> tuple[Column, ...]:
        """Return the columns with a result or a failure."""
        return tuple(sorted({column for _, column in (*self.done, *self.failed)}))

    def protocols(self, columns: Iterable[Column]) -> str:
        """Return the protocols, with versions, of the results in these columns."""
        wanted = set(columns)
        done = chain.from_iterable(self.done.values())
        return ", ".join(sorted({r.protocol for r in done if column_of(r) in wanted}))

    def metric_and_heading(self, column: Column) -> tuple[str, str]:
        """Return primary metric and heading of a column, as its records hold them."""
        entries: list[tuple[Result | Failure, ...]] = [*self.done.values(), *self.failed.values()]
        first = next(members[0] for members in entries if column_of(members[0]) == column)
        return first.primary_metric, first.heading

    @property
    def heading(self) -> str:
        """Return the reasons as a heading."""
        text = ", ".join(self.reasons.words()) or "paper schedule, full data"
        if self.version:
            text += f", other settings or data ({self.version})"
        return text[0].upper() + text[1:]


def sort_into_blocks(
    done: Iterable[Result],
    failed: Iterable[Failure] = (),
    check: ProtocolCheck | None = None,
    group_key: Callable[[Model], Hashable] = lambda model: model,
) -> list[Block]:
    """Return the blocks by schedule, the comparable one first; those of one kind, newest first.

    group_key: key of a backbone. Results of all backbones with one key are sorted into rows by
    their conditions as if they were those of one backbone.
    """
    kinds = grouped((reasons_of(result, check), result) for result in done)
    blocks = [
        Block(reasons=why, version=version, done=results, failed={})
        for why in sorted(kinds, key=lambda why: why.rank)
        for version, results in enumerate(_split_versions(kinds[why], group_key))
    ]
    return _with_failures(blocks, failed, check)


def _split_versions(
    results: list[Result], group_key: Callable[[Model], Hashable]
) -> list[dict[tuple[Model, Column], tuple[Result, ...]]]:
    """Return tables whose columns each have one protocol hash and one state of the data."""
    columns: dict[Column, dict[tuple[str, str], list[Result]]] = {}
    for result in results:
        # full data are the same as images or as arrays, so their fingerprints are not compared;
        # generated and incomplete data differ from each other
        data = result.fingerprint if result.small or result.tolerated else ""
        states = columns.setdefault(column_of(result), {})
        states.setdefault((result.protocol_hash, data), []).append(result)
    versions: list[dict[tuple[Model, Column], tuple[Result, ...]]] = []
    for column in sorted(columns):
        newest_first = sorted(
            columns[column].items(),
            key=lambda item: (max(r.finished for r in item[1]), item[0]),
            reverse=True,
        )
        for version, (_, members) in enumerate(newest_first):
            if version == len(versions):
                versions.append({})
            versions[version] |= {
                (row, column): done for row, done in _split_rows(members, group_key)
            }
    return versions


def _split_rows(
    members: list[Result], group_key: Callable[[Model], Hashable]
) -> Iterator[tuple[Model, tuple[Result, ...]]]:
    """Yield the rows of one column, each with the runs that may share a mean."""
    for results in grouped((group_key(result.model), result) for result in members).values():
        for words, group in _group_by_conditions(results).items():
            for model in dict.fromkeys(result.model for result in group):
                runs = [result for result in group if result.model == model]
                row = replace(model, other_conditions=words)
                yield row, tuple(sorted(runs, key=lambda run: run.seed))


def _group_by_conditions(results: Sequence[Result]) -> dict[str, list[Result]]:
    """Return the groups of results that may share a mean, by their differences from the first.

    The first group is the largest; among equally large groups, the one with the fewest departures.
    Its name is empty.
    """
    groups = grouped((conditions(result), result) for result in results)

    def rank(common: Conditions) -> tuple[int, int, Conditions]:
        return -len(groups[common]), len(groups[common][0].departures), common

    first, *others = sorted(groups, key=rank)

    def differences(common: Conditions) -> str:
        return ", ".join(mine for mine, other in zip(common, first, strict=True) if mine != other)

    # departures are long: a group's name holds them only if nothing else names it uniquely
    brief = [differences(common._replace(departures=first.departures)) for common in others]
    names = [
        words if words and brief.count(words) == 1 else differences(common)
        for common, words in zip(others, brief, strict=True)
    ]
    named = zip(("", *names), (first, *others), strict=True)
    return {name: groups[common] for name, common in named}


def _with_failures(
    blocks: list[Block], failed: Iterable[Failure], check: ProtocolCheck | None
) -> list[Block]:
    """Return the blocks with each failure added to one of its schedule and protocol.

    A block that has a row of the failure's backbone is preferred, most of all one with results of
    other seeds. If there is none, the failure gets a block of its own.
    """
    rows = [(block, model) for block in blocks for model in block.models]
    known = {(block.reasons, block.version): block for block in blocks}
    for failure in sorted(failed, key=lambda f: (f.backbone, f.task, f.protocol, f.seed)):
        column = column_of(failure)
        own = [(block, model) for block, model in rows if model.name == failure.backbone]
        named = [model for _, model in own if not model.other_conditions]
        row = named[-1] if named else Model(name=failure.backbone)
        why = reasons_of(failure, check, row)
        fitting = [one for one in own if one[0].reasons._replace(altered="", data="") == why]
        alone = Block(reasons=why, done={}, failed={})
        found = min(fitting, key=lambda one: (one[1], column) not in one[0].done, default=None)
        block, row = found or (alone, row)
        place, entry = (block.reasons, block.version), (row, column)
        block = known.get(place, alone)
        others = block.failed.get(entry, ())
        known[place] = replace(block, failed={**block.failed, entry: (*others, failure)})
    return [known[place] for place in sorted(known, key=lambda place: (place[0].rank, place[1]))]
