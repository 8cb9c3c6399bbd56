"""Which results may share a column.

A block is a table of rows that may be compared with each other. What leaves the paper's protocol,
length or data is in another block than what keeps them, and within a block one column holds one
protocol hash and one state of the data. Runs that must not share a mean stand in different rows.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from benchmarks.pages.conditions import parted
from benchmarks.pages.records import SMALL_DATA, Failure, Model, Result

SCHEDULES = ("paper", "short", "smoke")

Column = tuple[str, str]
"""Task id, and protocol without its version: another version is another hash."""

Apart = Callable[[Model, str, str], str]
"""Of a backbone, a task and a protocol without its version: the words "protocol ..." if a page asks
for another one there; empty if for this one."""


@dataclass(frozen=True, kw_only=True)
class Block:
    """Rows that may be compared with each other."""

    reasons: tuple[str, ...]
    """Why they may not be compared with the paper; empty if they may."""
    version: int
    """0, or how many newer blocks with the same reasons have other protocol hashes or data."""
    done: Mapping[tuple[Model, Column], tuple[Result, ...]]
    """By seed."""
    failed: Mapping[tuple[Model, Column], tuple[Failure, ...]]
    """By seed; without those that succeeded later."""

    @property
    def models(self) -> tuple[Model, ...]:
        """The rows, by name; random initializations come last."""
        rows = {model for model, _ in (*self.done, *self.failed)}
        return tuple(sorted(rows, key=lambda m: (m.name.startswith("random"), m)))

    @property
    def columns(self) -> tuple[Column, ...]:
        """What was run or has failed."""
        return tuple(sorted({column for _, column in (*self.done, *self.failed)}))

    def protocols(self, columns: Iterable[Column]) -> str:
        """Names with versions of what was run in these columns."""
        wanted = set(columns)
        names = {
            r.protocol for (_, column), rs in self.done.items() if column in wanted for r in rs
        }
        return ", ".join(sorted(names))

    def describe(self, column: Column) -> tuple[str, str]:
        """Return primary metric and heading of a column, as its records hold them."""
        entries: list[Result | Failure] = [
            entry
            for cells in (self.done, self.failed)
            for (_, other), members in cells.items()
            if other == column
            for entry in members
        ]
        return entries[0].primary_metric, entries[0].heading

    @property
    def heading(self) -> str:
        """The reasons as a heading."""
        text = ", ".join(self.reasons) or "paper schedule, full data"
        if self.version:
            text += f", other settings or data ({self.version})"
        return text[0].upper() + text[1:]


def reasons(result: Result, apart: Apart | None = None) -> tuple[str, ...]:
    """Why a result may not stand beside the paper's numbers; empty if it may.

    apart: None takes any protocol.
    """
    found = []
    if result.schedule != "paper":
        found.append(schedule_words(result.schedule))
    elif result.protocol_hash != result.paper_hash:
        found.append("altered protocol")
    if result.small:
        found.append(SMALL_DATA[result.small])
    elif result.tolerated:
        found.append("incomplete data")
    if apart is not None:
        found.append(apart(result.model, result.task, family(result.protocol)))
    return tuple(words for words in found if words)


def schedule_words(schedule: str) -> str:
    """Like "smoke schedule"; a share of the paper's length is like "0.02-length schedule"."""
    return f"{schedule} schedule" if schedule in SCHEDULES else f"{schedule}-length schedule"


def family(protocol: str) -> str:
    """The name without the version: "lorac-2021/1" is "lorac-2021"."""
    return protocol.partition("/")[0]


def itself(model: Model) -> Hashable:
    """Return the backbone: its own results are parted from each other."""
    return model


def arrange(
    done: Iterable[Result],
    failed: Iterable[Failure],
    apart: Apart | None = None,
    together: Callable[[Model], Hashable] = itself,
) -> list[Block]:
    """Blocks from the comparable one to the shortest schedule, the newest of each kind first.

    together: equal for backbones whose results are parted from each other as if they were one's.
    """
    kinds: dict[tuple[str, ...], list[Result]] = {}
    for result in done:
        kinds.setdefault(reasons(result, apart), []).append(result)
    blocks = [
        Block(reasons=why, version=version, done=cells, failed={})
        for why in sorted(kinds, key=_rank)
        for version, cells in enumerate(_versions(kinds[why], together))
    ]
    return _with_failures(blocks, failed, apart)


def _rank(why: tuple[str, ...]) -> tuple[int, tuple[str, ...]]:
    schedule = why[0].split()[0] if why and why[0].endswith(" schedule") else "paper"
    return (SCHEDULES.index(schedule) if schedule in SCHEDULES else len(SCHEDULES), why)


def _versions(
    results: list[Result], together: Callable[[Model], Hashable]
) -> list[dict[tuple[Model, Column], tuple[Result, ...]]]:
    """Cells such that a column of each has one protocol hash and one state of the data."""
    columns: dict[Column, dict[tuple[str, str], list[Result]]] = {}
    for result in results:
        states = columns.setdefault((result.task, family(result.protocol)), {})
        # whole data is whole data, as images or as arrays; generated data differ from each other
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
            versions[version] |= {(row, column): done for row, done in _rows(members, together)}
    return versions


def _rows(
    members: list[Result], together: Callable[[Model], Hashable]
) -> Iterator[tuple[Model, tuple[Result, ...]]]:
    """Rows of one column, each with the runs that may share a mean."""
    alike: dict[Hashable, list[Result]] = {}
    for result in members:
        alike.setdefault(together(result.model), []).append(result)
    for results in alike.values():
        for words, group in parted(results).items():
            for model in dict.fromkeys(result.model for result in group):
                runs = [result for result in group if result.model == model]
                yield replace(model, apart=words), tuple(sorted(runs, key=lambda r: r.seed))


def _with_failures(
    blocks: list[Block], failed: Iterable[Failure], apart: Apart | None
) -> list[Block]:
    """Each failure in a block of its schedule and reading that has a row of its backbone."""
    named = {model.name: model for block in blocks for model in block.models if not model.apart}
    cells: dict[tuple[tuple[str, ...], int], dict[tuple[Model, Column], tuple[Failure, ...]]] = {}
    for failure in sorted(failed, key=lambda f: (f.backbone, f.task, f.protocol, f.seed)):
        known_as = named.get(failure.backbone, Model(name=failure.backbone))
        why = _known_reasons(failure, known_as, apart)
        block, model = _home(blocks, failure, why) or (None, known_as)
        place = cells.setdefault((block.reasons, block.version) if block else (why, 0), {})
        key = (model, (failure.task, family(failure.protocol)))
        place[key] = (*place.get(key, ()), failure)
    known = {(block.reasons, block.version): block for block in blocks}
    return [
        Block(
            reasons=place[0],
            version=place[1],
            done=known[place].done if place in known else {},
            failed=cells.get(place, {}),
        )
        for place in sorted({*known, *cells}, key=lambda place: (_rank(place[0]), place[1]))
    ]


def _known_reasons(failure: Failure, model: Model, apart: Apart | None) -> tuple[str, ...]:
    """What a failure tells of its reasons: nothing of data and numbers."""
    found = [] if failure.schedule == "paper" else [schedule_words(failure.schedule)]
    if apart is not None:
        found.append(apart(model, failure.task, family(failure.protocol)))
    return tuple(words for words in found if words)


def _home(
    blocks: list[Block], failure: Failure, why: tuple[str, ...]
) -> tuple[Block, Model] | None:
    """Block and row where a failure belongs, best where its other seeds are."""
    column = (failure.task, family(failure.protocol))
    rows = [
        (block, model)
        for block in blocks
        if _told(block.reasons) == why
        for model in block.models
        if model.name == failure.backbone
    ]
    return min(rows, key=lambda row: (row[1], column) not in row[0].done, default=None)


def _told(why: tuple[str, ...]) -> tuple[str, ...]:
    """The reasons that a failure knows of, too."""
    return tuple(r for r in why if r.endswith(" schedule") or r.startswith("protocol "))
