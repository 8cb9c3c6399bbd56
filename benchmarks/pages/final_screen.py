"""The last screen of a run: one compact table of this run's numbers, then its failures."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

from rich.cells import cell_len, set_cell_size

from benchmarks.pages.against import compared_everywhere
from benchmarks.pages.blocks import conditions, reasons_of, without_version
from benchmarks.pages.differences import SIGNS, Difference, Word
from benchmarks.pages.entries import score_of
from benchmarks.pages.published import best_published
from benchmarks.pages.records import Failure, RequestedCell, Result, Results, grouped
from benchmarks.pages.table_rows import aligned, first_lines

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
    results: Results,
    cells: Sequence[RequestedCell],
    unreadable: Mapping[str, str] = MappingProxyType({}),
    width: int = 80,
) -> str:
    """Return the numbers of the cells as a text table, and their failures with reasons.

    results: at most one record of a cell, that of the run's conditions.

    Each row is a task with the number of each checkpoint (mean over seeds), the best published one,
    and the verdict on the checkpoints that a paper has, too. Of more than MOST_COLUMNS checkpoints,
    such as the snapshots of a run, each has rows of its own. Verdicts need the paper's protocol,
    length and data; a note says what stands against them.

    unreadable: reasons of checkpoints whose files could not be read, by name. width: columns of
    the terminal, which breaks longer rows; reasons are cut after two lines.
    """
    wanted = set(cells)
    done = [result for result in results.done if result.cell in wanted]
    lost = wanted - {result.cell for result in done}
    failed = [one for one in results.failed if one.cell in lost]
    names = list(dict.fromkeys(cell.backbone for cell in cells))
    rows = _table(names, cells, done, failed)
    lines_of_row = -(-max(map(cell_len, rows)) // width)  # a terminal breaks long rows
    reasons = [f"failed  {name}  {' '.join(why.split())}" for name, why in unreadable.items()]
    reasons += [f"failed  {one.backbone}  {one.task}  {one.reason}" for one in failed]
    below = [shortened(note, 2 * width) for note in _notes(done)]
    shown = [shortened(reason, 2 * width) for reason in reasons]
    below += first_lines(shown, MOST_FAILURES, "more failures below tables/")
    room = MOST_LINES - 1 - 2 * len(below)
    return "\n".join([*first_lines(rows, room // lines_of_row, "more below tables/"), *below])


def shortened(text: str, length: int) -> str:
    """Return the text, cut to a length in columns."""
    return text if cell_len(text) <= length else f"{set_cell_size(text, length - 1)}…"


def _table(
    names: Sequence[str],
    cells: Sequence[RequestedCell],
    done: Sequence[Result],
    failed: Sequence[Failure],
) -> list[str]:
    beside = len(names) <= MOST_COLUMNS
    columns = list(dict.fromkeys((cell.task, cell.protocol) for cell in cells))
    groups = [
        (group, verdicts_of(r for r in done if r.model.name in group))
        for group in ([names] if beside else [[name] for name in names])
    ]
    rows = []
    for task, protocol in columns:
        own = [r for r in done if (r.task, r.protocol) == (task, protocol)]
        lost = {f.backbone for f in failed if (f.task, f.protocol) == (task, protocol)}
        for group, verdicts in groups:
            if not lost.union(r.model.name for r in own).intersection(group):
                continue
            numbers = [_number([r for r in own if r.model.name == n], n in lost) for n in group]
            metric = own[0].primary_metric if own else "-"
            printed = best_published(task, without_version(protocol), metric)
            best = f"{printed[0]:.1f}" if printed else "-"
            judged = verdicts.get((task, without_version(protocol), metric))
            word = judged.verdict() if judged else ""
            verdict = f"{SIGNS[word]} {word} {judged.interval_text()}" if judged else "-"
            label = [_label(task, protocol, columns), *([] if beside else group), metric]
            rows.append([*label, *numbers, best, verdict])
    if not rows:
        return ["no number of this run"]
    titles = ["metric", *(shortened(name, NAME_WIDTH) for name in names)]
    titles = titles if beside else ["checkpoint", "metric", "ours"]
    header = ["task", *titles, "published", "verdict"]
    return aligned([header, *rows], (0, 1, *[2] * (not beside), len(header) - 1))


def _label(task: str, protocol: str, columns: Sequence[tuple[str, str]]) -> str:
    """Return the task, with its protocol where another protocol of the task was run, too."""
    several = sum(other == task for other, _ in columns) > 1
    return f"{task} ({protocol})" if several else task


def _number(own: Sequence[Result], failed: bool) -> str:
    """Return the mean over seeds; of seeds that ran under unlike conditions, one for each."""
    alike = grouped(
        ((r.protocol_hash, conditions(r), r.fingerprint), r.metrics[r.primary_metric])
        for r in own
        if r.primary_metric in r.metrics
    )
    if alike:
        return " / ".join(score_of(values).text(1) for values in alike.values())
    return "failed" if failed else "-"


def verdicts_of(done: Iterable[Result]) -> dict[tuple[str, str, str], Difference]:
    """Return the difference with the worst verdict over backbones.

    Keys are task, protocol without version, and metric.
    """
    found: dict[tuple[str, str, str], Difference] = {}
    for _, _, pair in compared_everywhere(tuple(done)):
        if pair.judged:
            key = (pair.task, pair.row.protocol_of(pair.column), pair.column.metric)
            both = (found.get(key, pair.difference), pair.difference)
            found[key] = max(both, key=lambda one: VERDICTS.index(one.verdict()))
    return found


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
