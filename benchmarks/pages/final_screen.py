"""The last screen of a run: one compact table of this run's numbers, then its failures."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from benchmarks.pages.against import compared_numbers
from benchmarks.pages.entries import score_of
from benchmarks.pages.published import Column, Row, papers
from benchmarks.pages.reasons import reasons_of, without_version
from benchmarks.pages.records import Failure, Result, Results
from benchmarks.pages.verdict import Verdict, verdict

MOST_LINES = 58
"""Longest screen, so that it and the paths below it fit into 60 lines."""
MOST_FAILURES = 8
"""Failures whose reasons are shown."""
VERDICTS: tuple[Verdict, ...] = ("pass", "warn", "fail")
SIGNS: Mapping[Verdict, str] = {"pass": "✓ pass", "warn": "! warn", "fail": "✗ fail"}
NAME_WIDTH = 18
"""Longest name of a checkpoint in the heading of its column."""


@dataclass(frozen=True, order=True)
class RequestedCell:
    """Backbone, task, protocol with version, schedule and seed of a cell of this run."""

    backbone: str
    task: str
    protocol: str
    schedule: str
    seed: int


def final_screen(results: Results, cells: Sequence[RequestedCell]) -> str:
    """Return the numbers of the cells as a text table, and their failures with reasons.

    Each row is a task with the number of each checkpoint (mean over seeds), the best published one,
    and the verdict on the checkpoints that a paper has, too. Verdicts need the paper's protocol,
    length and data; a note says what stands against them.
    """
    wanted = set(cells)
    done = [result for result in results.done if _cell(result) in wanted]
    failed = [failure for failure in results.failed if _cell(failure) in wanted]
    finished = {_cell(result) for result in done}
    failed = [failure for failure in failed if _cell(failure) not in finished]
    names = list(dict.fromkeys(cell.backbone for cell in cells))
    lines = _failure_lines(failed)
    notes = _notes(done)
    room = MOST_LINES - len(lines) - len(notes) - 1
    return "\n".join([*_table(names, cells, done, failed, room), *notes, *lines])


def _cell(entry: Result | Failure) -> RequestedCell:
    name = entry.model.name if isinstance(entry, Result) else entry.backbone
    return RequestedCell(name, entry.task, entry.protocol, entry.schedule, entry.seed)


def _table(
    names: Sequence[str],
    cells: Sequence[RequestedCell],
    done: Sequence[Result],
    failed: Sequence[Failure],
    room: int,
) -> list[str]:
    verdicts = verdicts_of(done)
    columns = list(dict.fromkeys((cell.task, cell.protocol) for cell in cells))
    rows = []
    for task, protocol in columns:
        own = [r for r in done if (r.task, r.protocol) == (task, protocol)]
        lost = {f.backbone for f in failed if (f.task, f.protocol) == (task, protocol)}
        numbers = [_number([r for r in own if r.model.name == n], n in lost) for n in names]
        judged = [v for (task_, _), v in verdicts.items() if task_ == task]
        if not own and not lost:
            continue
        metric = own[0].primary_metric if own else "-"
        best = best_published(task, without_version(protocol), metric)
        sign = SIGNS[max(judged, key=VERDICTS.index)] if judged else "-"
        rows.append([_label(task, protocol, columns), metric, *numbers, best, sign])
    if not rows:
        return ["no number of this run"]
    header = ["task", "metric", *(_shortened(name) for name in names), "best published", "verdict"]
    text = _aligned([header, *rows])
    if len(text) > room:
        text = [*text[: room - 1], f"... and {len(text) - room + 1} more in tables/overview.md"]
    return text


def _label(task: str, protocol: str, columns: Sequence[tuple[str, str]]) -> str:
    """Return the task, with its protocol where another protocol of the task was run, too."""
    several = sum(other == task for other, _ in columns) > 1
    return f"{task} ({protocol})" if several else task


def _shortened(name: str) -> str:
    return name if len(name) <= NAME_WIDTH else f"{name[: NAME_WIDTH - 1]}…"


def _number(own: Sequence[Result], failed: bool) -> str:
    values = [r.metrics[r.primary_metric] for r in own if r.primary_metric in r.metrics]
    if values:
        return score_of(values).text(1)
    return "failed" if failed else "-"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return lines with two columns of words, numbers at the right, and the verdict."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    last = len(widths) - 1
    return [
        "  ".join(
            text.ljust(width) if i < 2 or i == last else text.rjust(width)
            for i, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def verdicts_of(done: Iterable[Result]) -> dict[tuple[str, str], Verdict]:
    """Return the worst verdict on each (task, backbone) that a paper's row has, too."""
    results = tuple(done)
    found: dict[tuple[str, str], Verdict] = {}
    for paper in papers():
        for table in paper.tables:
            for pair in compared_numbers(table, results)[0]:
                if pair.judged:
                    key = (pair.task, pair.model.name)
                    judged = verdict(pair.ours.mean - pair.paper, pair.task)
                    found[key] = max(found.get(key, "pass"), judged, key=VERDICTS.index)
    return found


def best_published(task: str, protocol: str, metric: str) -> str:
    """Return the best number that the papers print for a task under a protocol, or "-"."""
    values = [
        value
        for paper in papers()
        for table in paper.tables
        for row in table.rows
        for column in table.columns
        if _measures(row, column, task, protocol, metric)
        and (value := row.values.get(column.key)) is not None
    ]
    return f"{max(values):.1f}" if values else "-"


def _measures(row: Row, column: Column, task: str, protocol: str, metric: str) -> bool:
    """Return whether a printed number is of this task, protocol and metric, and trained without
    labels."""
    return (
        (row.task or column.task) == task
        and row.protocol_of(column) == protocol
        and column.metric == metric
        and row.role != "supervised"
    )


def _notes(done: Sequence[Result]) -> list[str]:
    """Return what all numbers have in common that keeps them from a comparison with the papers."""
    if not done:
        return []
    words = [reasons_of(result).words() for result in done]
    common = [word for word in words[0] if all(word in others for others in words)]
    if common:
        return [f"not comparable with the papers: {', '.join(common)}"]
    apart = sum(bool(each) for each in words)
    return [f"{apart} numbers are not comparable with the papers: see the tables"] * bool(apart)


def _failure_lines(failed: Sequence[Failure]) -> list[str]:
    lines = [f"failed  {f.backbone}  {f.task}  {f.reason}" for f in failed[:MOST_FAILURES]]
    more = len(failed) - MOST_FAILURES
    return lines + [f"... and {more} more failures in tables/overview.md"] * (more > 0)
