"""Our comparable numbers next to the published numbers of the same recipe and pre-training."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from typing import NamedTuple

from benchmarks.results.differences import Difference, difference, run_deviation
from benchmarks.results.numbers import Number
from benchmarks.results.published import (
    UNTRAINED,
    Printed,
    Row,
    Table,
    all_tables,
    printed,
    published_score,
)
from benchmarks.results.records import STAND_IN_TEXTURE, Run, grouped
from benchmarks.results.tables import Part, grid, plain

HEADER = ("ours", "published", "number", "ours", "paper", "diff.", "95 % interval", "verdict")
NO_ERRORS = "the record does not hold what its number's error follows from; evaluate again"
TRAIN_IMAGES = {"in1k": 1_281_167, "in100": 126_689, "cifar10": 50_000, "cifar100": 50_000}
"""Number of images of the data sets that the papers pre-train on."""


class Pair(NamedTuple):
    """One number that both we and a paper have."""

    ours: Number
    printed: Printed
    difference: Difference
    """Ours minus the paper's."""
    not_judged: str
    """Why the number gets no verdict; empty if it gets one."""

    @property
    def word(self) -> str:
        """Return the verdict, or that there is none."""
        return "no verdict" if self.not_judged else self.difference.verdict()

    @property
    def is_other_reading(self) -> bool:
        """Return whether our recipe is another reading of the printed row."""
        return self.ours.run.recipe in self.printed.row.beside


def pairs_of(numbers: Iterable[Number]) -> list[Pair]:
    """Return every number that both we and a paper have: by table, by our row, as printed.

    Numbers that were measured elsewhere are paired with ours under the protocol of the column.
    """
    both = []
    for number in numbers:
        if not (number.comparable and number.score):
            continue
        recipe = UNTRAINED if number.run.is_untrained else number.run.recipe
        key = recipe, frozenset(number.run.heads), *number.column, number.metric
        for table, place, one in _printed_by_key().get(key, ()):
            if not pretraining_differences(one.row, number.run):
                both.append((table, number.row, place, number, one))
    return [_pair(ours, one) for *_, ours, one in sorted(both, key=lambda entry: entry[:3])]


@cache
def _printed_by_key() -> dict[tuple[object, ...], list[tuple[int, int, Printed]]]:
    """Return the printed numbers by recipe, heads, task, protocol and metric of ours.

    Each is behind the places of its table and of the number.
    """
    tables = {table.id: place for place, (_, table) in enumerate(all_tables())}
    return grouped(
        ((recipe, frozenset(row.heads), one.task, protocol, column.metric), entry)
        for place, one in enumerate(printed())
        for row, column, protocol in [(one.row, one.column, one.protocol or one.column.protocol)]
        for entry in [(tables[one.table.id], place, one)]
        for recipe in ([UNTRAINED] if row.role == "random" else [row.recipe, *row.beside])
        if recipe
    )


def _pair(ours: Number, one: Printed) -> Pair:
    if ours.score is None:
        raise ValueError("a pair needs a number of ours")
    apart = difference(ours.score, published_score(one.row, one.column, one.value), one.task)
    reason = one.row.no_verdict(one.column)
    return Pair(ours, one, apart, reason or ("" if apart.known else NO_ERRORS))


def verdict_words(pairs: Iterable[Pair]) -> dict[tuple[str, str], str]:
    """Return the verdicts, each with its interval and table, by record and metric."""
    words = grouped(
        (
            (file, pair.ours.metric),
            f"{pair.word} {pair.difference.interval_text()} ({pair.printed.where})",
        )
        for pair in pairs
        if not pair.not_judged
        for file in pair.ours.files
    )
    return {key: "; ".join(dict.fromkeys(own)) for key, own in words.items()}


def comparison_parts(table: Table, pairs: Sequence[Pair], rows: Iterable[Number]) -> list[Part]:
    """Return a table of differences, and a line for each of our rows that cannot be compared.

    pairs: those of the table. rows: ours under the paper's protocol on full data.
    """
    compared = {pair.ours.row for pair in pairs}
    apart = [row for row in rows if row.row not in compared]
    if not pairs and not apart:
        return ["No comparable row yet: nothing was run under the paper's protocol on full data."]
    judged = [pair.printed.task for pair in pairs if not pair.not_judged]
    lines = [_deviation_source(task) for task in judged]
    unjudged = grouped((pair.not_judged, pair.printed.row.label) for pair in pairs)
    lines += [
        f"- no verdict ({', '.join(dict.fromkeys(labels))}): {reason}."
        for reason, labels in unjudged.items()
        if reason
    ]
    lines += [_remark(pair) for pair in pairs if pair.is_other_reading]
    lines += [f"- {plain(row.label)}: {why_apart(table, row.run)}." for row in apart]
    parts: list[Part] = [grid(HEADER, map(_line, pairs), left=3)] if pairs else []
    return [*parts, "\n".join(dict.fromkeys(lines))]


def _deviation_source(task: str) -> str:
    """Return the run-to-run deviation; one line for all twelve data sets of linear transfer."""
    deviation = run_deviation(task)
    return f"- {task.partition('/')[0]}: {deviation.points:g} from run to run; {deviation.source}."


def _remark(pair: Pair) -> str:
    """Return the line on a recipe that is another reading of the printed row."""
    recipe, row, name = pair.ours.run.recipe, pair.printed.row, plain(pair.ours.label)
    return (
        f"- → {name} is no run of the printed row {row.label} (`{row.recipe}`), but "
        f"another reading of it: `{recipe}`, {row.beside[recipe]}."
    )


def _line(pair: Pair) -> list[str]:
    label = pair.printed.row.label
    return [
        f"→ {plain(pair.ours.label)}",
        f"{label} (another reading)" if pair.is_other_reading else label,
        pair.printed.label,
        pair.ours.score.text(2) if pair.ours.score else "",
        f"{pair.printed.value}",
        f"{pair.difference.points:+.2f}",
        pair.difference.interval_text() if pair.difference.known else "–",
        pair.word,
    ]


def why_apart(table: Table, run: Run) -> str:
    """Return why a backbone has no published counterpart in a table."""
    if not run.method:
        reason = "the file does not say how it was made (`--trained-with RECIPE` declares it)"
        return f"no published counterpart: {reason}"
    rows = rows_of_recipe(table, run)
    if not rows:
        origin = "a random initialization" if run.is_untrained else run.recipe or run.method
        heads = f" with heads {', '.join(run.heads)} alone" if run.heads else ""
        return f"no published counterpart: no row of the table is of {origin}{heads}"
    if any(not pretraining_differences(row, run) for row in rows):
        return "no number to compare"
    differences = "; ".join(pretraining_differences(rows[0], run))
    return f"no verdict: the paper's {rows[0].label} differs ({differences})"


def missing_row_lines(table: Table, rows: Iterable[Number]) -> list[str]:
    """Return a line for each published row without a result of ours: the runs that it needs.

    rows: ours under the paper's protocol on full data. The last line names the rows that nothing
    here can produce.
    """
    runs = [row.run for row in rows]
    measured = [
        row
        for run in runs
        for row in rows_of_recipe(table, run)
        if run.method and run.recipe not in row.beside and not pretraining_differences(row, run)
    ]
    absent = [row for row in table.rows if row not in measured]
    for point in table.points:
        own = [run for run in runs if run.recipe == point.recipe]
        absent += [point] if all(pretraining_differences(point, run) for run in own) else []
    needs = [(row.label, _needed_runs(row)) for row in absent]
    lines = [f"- {label}: {needed}" for label, needed in needs if needed]
    if unbuilt := ", ".join(dict.fromkeys(label for label, needed in needs if not needed)):
        lines.append(f"- not implemented here: {unbuilt}")
    return list(dict.fromkeys(lines))


def _needed_runs(row: Row) -> str:
    """Return the runs that a row needs; empty if nothing here can produce it."""
    if row.role == "random":
        return "needs no pre-training, `--random`"
    if not row.recipe:
        return ""
    numbers, names = ",".join(map(str, row.heads.values())), " and ".join(row.heads)
    heads = f", then `--heads {numbers}` ({names})" if row.heads else ""
    return f"needs pre-training `{row.recipe}`{heads}"


def rows_of_recipe(table: Table, run: Run) -> list[Row]:
    """Return the rows that name the backbone's recipe and heads, of any pre-training length."""
    if run.is_untrained:
        return [row for row in table.rows if row.role == "random"]
    return [
        row
        for row in table.rows
        if run.recipe
        and run.recipe in (row.recipe, *row.beside)
        and set(run.heads) == set(row.heads)
    ]


def pretraining_differences(row: Row, run: Run) -> list[str]:
    """Return the differences in pre-training; settings that the paper omits are not compared."""
    paper = row.pretrain
    differences = []
    if paper.arch is not None and paper.arch != run.arch:
        differences.append(f"network {paper.arch}, ours {run.arch}")
    if paper.data is not None and not trained_on(paper.data, run):
        differences.append(f"data {paper.data}, ours {run.data}")
    if paper.epochs is not None and str(paper.epochs) != run.epochs:
        differences.append(f"epochs {paper.epochs}, ours {run.epochs}")
    if norm := norm_difference(paper.norm_groups, run.norm_groups):
        differences.append(norm)
    if run.changed:
        differences.append(f"ours changed its recipe in {run.changed}")
    if run.texture == STAND_IN_TEXTURE:
        differences.append(f"textures by style transfer, ours by {STAND_IN_TEXTURE}")
    return differences


def norm_difference(paper: int | None, ours: int | None) -> str:
    """Return the difference in the groups of shuffled batch norm; empty if there is none.

    A paper that does not say how many it has (0) has at least two: one group shuffles nothing.
    """
    if paper is None or ours is None or (ours == paper if paper else ours > 1):
        return ""
    return f"groups of shuffled batch norm {paper or 'not stated, at least 2'}, ours {ours}"


def norm_group_lines(rows: Sequence[Row]) -> list[str]:
    """Return lines on the groups of shuffled batch norm with which rows were trained."""
    labels = grouped((row.pretrain.norm_groups, row.label) for row in rows)
    stated = [
        f"{number} ({', '.join(dict.fromkeys(names))})"
        for number, names in sorted((n, names) for n, names in labels.items() if n)
    ]
    lines = []
    if stated:
        lines.append(
            f"Groups of shuffled batch norm, one per GPU: {'; '.join(stated)}. Ours are GPUs times "
            "`--bn-splits`, and a run with another number has no verdict."
        )
    if silent := ", ".join(dict.fromkeys(labels.get(0, ()))):
        lines.append(
            f"The paper does not say over how many groups (GPUs) the batch norm of {silent} is "
            "shuffled; ours are GPUs times `--bn-splits`, and a run with one group, which shuffles "
            "nothing, has no verdict."
        )
    return lines


def trained_on(data: str, run: Run) -> bool:
    """Return whether a backbone was pre-trained on a data set.

    Its recipe or folder must name the set. The number of images, if known, must fit within 1 %.
    """
    count = re.search(r"(\d+) images", run.data)
    right_size = not count or math.isclose(int(count[1]), TRAIN_IMAGES[data], rel_tol=0.01)
    words = re.findall(r"[a-z0-9+]+", f"{run.recipe} {run.data}".lower())
    return data in words and right_size


def pretraining_data(run: Run, runs: Iterable[Run]) -> str:
    """Return the pre-training set by the papers' name, or by that of its folder; empty if unknown.

    runs: one of each backbone on the page. Where their folders hold the same images, by the
    fingerprint in the file, all are called by the most frequent name.
    """
    known = next((name for name in TRAIN_IMAGES if trained_on(name, run)), "")
    _, sign, fingerprint = run.data.partition(", fingerprint ")
    if known or not sign:
        return known or run.data
    same = (other.data for other in runs if other.data.endswith(sign + fingerprint))
    folders = Counter(data.removesuffix(sign + fingerprint) for data in same)
    return f"{folders.most_common(1)[0][0]})"
