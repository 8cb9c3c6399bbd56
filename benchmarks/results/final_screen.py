"""The last screen of a run: one compact table of this run's numbers, then its failures."""

from collections.abc import Container, Mapping, Sequence
from types import MappingProxyType

from rich.cells import cell_len, set_cell_size

from benchmarks.results.differences import SIGNS, Difference, Word, score_of
from benchmarks.results.numbers import numbers_of
from benchmarks.results.published import best_published
from benchmarks.results.records import CellId, Run, grouped
from benchmarks.results.verdicts import pairs_of

MOST_LINES = 46
"""Longest screen in lines of the terminal, so that everything that a run prints after its last cell
fits into 60 lines: paths of tables and figures before it, report and counts after it."""
MOST_FAILURES = 8
"""Failures whose reasons are shown, each on at most two lines."""
VERDICTS: tuple[Word, ...] = ("reproduced", "undecided", "above", "below")
MOST_COLUMNS = 4
"""Checkpoints whose numbers stand beside each other."""
NAME_WIDTH = 18
"""Longest name of a checkpoint in the heading of its column."""


def final_screen(
    runs: Sequence[Run],
    cells: Sequence[CellId],
    unreadable: Mapping[str, str] = MappingProxyType({}),
    width: int = 80,
) -> str:
    """Return the numbers of the cells as a text table, and their failures with reasons.

    runs: at most one record of a cell, that of the run's conditions; and failures.

    Each row is a task with the number of each checkpoint (mean over seeds), the best published one,
    and the verdict on the checkpoints that a paper has, too. Of more than MOST_COLUMNS checkpoints,
    such as the snapshots of a run, each has rows of its own. Verdicts need the paper's protocol,
    length and data; a note says what stands against them.

    unreadable: reasons of checkpoints whose files could not be read, by name. width: columns of
    the terminal, which breaks longer rows; reasons are cut after two lines.
    """
    wanted = set(cells)
    done = [run for run in runs if run.cell in wanted and not run.failure]
    lost = wanted - {run.cell for run in done}
    failed = [run for run in runs if run.cell in lost and run.failure]
    names = list(dict.fromkeys(cell.backbone for cell in cells))
    rows = _table(names, cells, done, failed)
    lines_of_row = -(-max(map(cell_len, rows)) // width)  # a terminal breaks long rows
    reasons = [f"failed  {name}  {' '.join(why.split())}" for name, why in unreadable.items()]
    reasons += [f"failed  {run.backbone}  {run.task}  {run.failure}" for run in failed]
    below = [shortened(note, 2 * width) for note in _notes(done)]
    shown = [shortened(reason, 2 * width) for reason in reasons]
    below += first_lines(shown, MOST_FAILURES, "more failures below tables/")
    room = MOST_LINES - 1 - 2 * len(below)
    return "\n".join([*first_lines(rows, room // lines_of_row, "more below tables/"), *below])


def shortened(text: str, length: int) -> str:
    """Return the text, cut to a length in columns."""
    return text if cell_len(text) <= length else f"{set_cell_size(text, length - 1)}…"


def _table(
    names: Sequence[str], cells: Sequence[CellId], done: Sequence[Run], failed: Sequence[Run]
) -> list[str]:
    beside = len(names) <= MOST_COLUMNS
    columns = list(dict.fromkeys((cell.task, cell.protocol) for cell in cells))
    tasks = [task for task, _ in columns]
    groups = [
        (group, _worst([run for run in done if run.backbone in group]))
        for group in ([names] if beside else [[name] for name in names])
    ]
    rows = []
    for task, protocol in columns:
        own = [run for run in done if (run.task, run.protocol) == (task, protocol)]
        lost = {run.backbone for run in failed if (run.task, run.protocol) == (task, protocol)}
        for group, worst in groups:
            if not lost.union(run.backbone for run in own).intersection(group):
                continue
            numbers = [
                _number([r for r in own if r.backbone == name], name in lost) for name in group
            ]
            metric, reading = own[0].primary_metric if own else "-", protocol.partition("/")[0]
            printed = best_published(task, reading, metric)
            best, verdict = f"{printed[0]:.1f}" if printed else "-", "-"
            if judged := worst.get((task, reading, metric)):
                word = judged.verdict()
                verdict = f"{SIGNS[word]} {word} {judged.interval_text()}"
            label = f"{task} ({protocol})" if tasks.count(task) > 1 else task
            rows.append([label, *([] if beside else group), metric, *numbers, best, verdict])
    if not rows:
        return ["no number of this run"]
    titles = ["metric", *(shortened(name, NAME_WIDTH) for name in names)]
    titles = titles if beside else ["checkpoint", "metric", "ours"]
    header = ["task", *titles, "published", "verdict"]
    return aligned([header, *rows], (0, 1, *([] if beside else [2]), len(header) - 1))


def _number(own: Sequence[Run], failed: bool) -> str:
    """Return the mean over seeds; for seeds that ran under other conditions, one for each."""
    alike = grouped(
        ((run.protocol_hash, run.conditions, run.fingerprint), run.metrics[run.primary_metric])
        for run in own
        if run.primary_metric in run.metrics
    )
    if alike:
        return " / ".join(score_of(values).text(1) for values in alike.values())
    return "failed" if failed else "-"


def _worst(done: Sequence[Run]) -> dict[tuple[str, str, str], Difference]:
    """Return the difference with the worst verdict over backbones.

    Keys are task, protocol without version, and metric.
    """
    worst: dict[tuple[str, str, str], Difference] = {}
    for pair in pairs_of(numbers_of(done)):
        if not pair.not_judged:
            printed = pair.printed
            key = printed.task, printed.protocol, printed.column.metric
            both = worst.get(key, pair.difference), pair.difference
            worst[key] = max(both, key=lambda one: VERDICTS.index(one.verdict()))
    return worst


def _notes(done: Sequence[Run]) -> list[str]:
    """Return the common reasons why the numbers may not be compared with the papers."""
    if not done:
        return []
    words = [run.reasons.words for run in done]
    common = [word for word in words[0] if all(word in others for others in words)]
    if common:
        return [f"not comparable with the papers: {', '.join(common)}"]
    if num_apart := sum(bool(own) for own in words):
        return [f"{num_apart} numbers are not comparable with the papers: see the tables"]
    return []


def aligned(rows: Sequence[Sequence[str]], left: Container[int]) -> list[str]:
    """Return lines with the columns of these places at the left and the others at the right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            text.ljust(width) if i in left else text.rjust(width)
            for i, (text, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def first_lines(lines: Sequence[str], most: int, rest: str) -> list[str]:
    """Return the first lines, and how many more there are with words on these."""
    more = len(lines) - most
    return [*lines[:most], *[f"... and {more} {rest}"] * (more > 0)]
