"""Blocks of results that may share a column.

A block is a table of rows that may be compared with each other. Results that leave the paper's
protocol, length or data are in another block than those that keep them. Within a block, one column
holds one protocol hash and one state of the data. Runs that must not share a mean stand in
different rows.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from benchmarks.pages.conditions import group_by_conditions
from benchmarks.pages.reasons import (
    COMPARABLE,
    ProtocolCheck,
    Reasons,
    reasons_of,
    reasons_of_failure,
    without_version,
)
from benchmarks.pages.records import Failure, Model, Result

Column = tuple[str, str]
"""Task id, and protocol without its version: another version is another hash."""


@dataclass(frozen=True, kw_only=True)
class Block:
    """Rows that may be compared with each other."""

    reasons: Reasons
    """Reasons why the rows may not be compared with the paper."""
    version: int
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
        names = {
            r.protocol for (_, column), rs in self.done.items() if column in wanted for r in rs
        }
        return ", ".join(sorted(names))

    def metric_and_heading(self, column: Column) -> tuple[str, str]:
        """Return primary metric and heading of a column, as its records hold them."""
        outcomes: list[Result | Failure] = [
            outcome
            for entries in (self.done, self.failed)
            for (_, other), members in entries.items()
            if other == column
            for outcome in members
        ]
        return outcomes[0].primary_metric, outcomes[0].heading

    @property
    def heading(self) -> str:
        """Return the reasons as a heading."""
        text = ", ".join(self.reasons.words()) or "paper schedule, full data"
        if self.version:
            text += f", other settings or data ({self.version})"
        return text[0].upper() + text[1:]


NO_ROWS = Block(reasons=COMPARABLE, version=0, done={}, failed={})


def backbone_key(model: Model) -> Hashable:
    """Return the backbone itself: only its own results are sorted into rows by their conditions."""
    return model


def sort_into_blocks(
    done: Iterable[Result],
    failed: Iterable[Failure],
    check: ProtocolCheck | None = None,
    group_key: Callable[[Model], Hashable] = backbone_key,
) -> list[Block]:
    """Return the blocks by schedule, the comparable one first; those of one kind, newest first.

    group_key: key of a backbone. Results of all backbones with one key are sorted into rows by
    their conditions as if they were those of one backbone.
    """
    kinds: dict[Reasons, list[Result]] = {}
    for result in done:
        kinds.setdefault(reasons_of(result, check), []).append(result)
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
        states = columns.setdefault((result.task, without_version(result.protocol)), {})
        # full data are the same as images or as arrays, so their fingerprints are not compared;
        # generated and incomplete data differ from each other
        data = result.fingerprint if result.small or result.tolerated else ""
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
    alike: dict[Hashable, list[Result]] = {}
    for result in members:
        alike.setdefault(group_key(result.model), []).append(result)
    for results in alike.values():
        for words, group in group_by_conditions(results).items():
            for model in dict.fromkeys(result.model for result in group):
                runs = [result for result in group if result.model == model]
                row = replace(model, other_conditions=words)
                yield row, tuple(sorted(runs, key=lambda run: run.seed))


def _with_failures(
    blocks: list[Block], failed: Iterable[Failure], check: ProtocolCheck | None
) -> list[Block]:
    """Return the blocks with each failure added to one of its schedule and protocol.

    A block that has a row of the failure's backbone is preferred. If there is none, the failure
    gets a block of its own.
    """
    rows = (row for block in blocks for row in block.models)
    named = {row.name: row for row in rows if not row.other_conditions}
    failures: dict[tuple[Reasons, int], dict[tuple[Model, Column], tuple[Failure, ...]]] = {}
    for failure in sorted(failed, key=lambda f: (f.backbone, f.task, f.protocol, f.seed)):
        known_as = named.get(failure.backbone, Model(name=failure.backbone))
        why = reasons_of_failure(failure, known_as, check)
        block, model = _block_and_row(blocks, failure, why) or (None, known_as)
        place = failures.setdefault((block.reasons, block.version) if block else (why, 0), {})
        key = (model, (failure.task, without_version(failure.protocol)))
        place[key] = (*place.get(key, ()), failure)
    known = {(block.reasons, block.version): block for block in blocks}
    return [
        Block(
            reasons=place[0],
            version=place[1],
            done=known[place].done if place in known else {},
            failed=failures.get(place, {}),
        )
        for place in sorted({*known, *failures}, key=lambda place: (place[0].rank, place[1]))
    ]


def _block_and_row(
    blocks: list[Block], failure: Failure, why: Reasons
) -> tuple[Block, Model] | None:
    """Return the block and row of a failure, preferably those with results of other seeds."""
    column = (failure.task, without_version(failure.protocol))
    rows = [
        (block, model)
        for block in blocks
        if block.reasons.of_failures == why
        for model in block.models
        if model.name == failure.backbone
    ]
    return min(rows, key=lambda row: (row[1], column) not in row[0].done, default=None)
