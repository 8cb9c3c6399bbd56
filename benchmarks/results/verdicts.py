"""Pair our comparable numbers with published numbers, and give verdicts."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache
from typing import NamedTuple

from benchmarks.results.differences import Difference, difference, run_deviation
from benchmarks.results.numbers import Number
from benchmarks.results.published import (
    Printed,
    Row,
    Table,
    all_tables,
    printed,
    published_score,
)
from benchmarks.results.records import STAND_IN_TEXTURE, Backbone
from benchmarks.results.tables import Part, grid, plain
from benchmarks.words import grouped
from transfer.encoders.public_files import PUBLIC_FILES
from transfer.record import UNTRAINED

HEADER = ("ours", "published", "number", "ours", "paper", "diff.", "95 % interval", "verdict")
NO_ERRORS = "the record has no per-image results, so no interval can be computed; evaluate again"
PRETRAINING_DATA = ("in1k", "in100", "cifar10", "cifar100")
"""Datasets that the papers pre-train on."""


class Pair(NamedTuple):
    """One number that both we and a paper have."""

    ours: Number
    printed: Printed
    difference: Difference
    """Ours minus the paper's."""
    no_verdict: str
    """Why the number gets no verdict; empty if it gets one."""

    @property
    def verdict(self) -> str:
        """Return the verdict, or "no verdict"."""
        return "no verdict" if self.no_verdict else self.difference.verdict(self.printed.task)

    @property
    def verdict_text(self) -> str:
        """Return the verdict with the interval, such as "reproduced [-0.4, +0.6]"."""
        return f"{self.verdict} {self.difference.interval_text()}"

    @property
    def is_variant(self) -> bool:
        """Return whether our recipe is a variant of the printed row's recipe."""
        return self.ours.backbone.recipe in self.printed.row.beside


def pairs_of(numbers: Iterable[Number]) -> list[Pair]:
    """Return every number that both we and a paper have.

    They are sorted by table, our row and printed order. Numbers that the paper measured elsewhere
    are paired with ours under the protocol of the column.
    """
    pairs = []
    for number in numbers:
        if not (number.reasons.comparable and number.score):
            continue
        backbone = number.backbone
        recipe = UNTRAINED if backbone.is_untrained else backbone.recipe
        key = recipe, frozenset(backbone.heads), *number.column, number.metric
        for table, index, published in _printed_by_key().get(key, ()):
            row, column = published.row, published.column
            if not pretraining_differences(row, backbone):
                score = published_score(row, column, published.value)
                diff = difference(number.score, score, published.task)
                reason = row.no_verdict(column) or ("" if diff.is_known else NO_ERRORS)
                pair = Pair(number, published, diff, reason)
                pairs.append(((table, number.row, index), pair))
    return [pair for _, pair in sorted(pairs, key=lambda entry: entry[0])]


@cache
def _printed_by_key() -> dict[tuple[object, ...], list[tuple[int, int, Printed]]]:
    """Return the printed numbers by recipe, heads, task, protocol and metric.

    Each has the index of its table and its own index.
    """
    tables = {table.id: index for index, (_, table) in enumerate(all_tables())}
    entries = []
    for index, published in enumerate(printed()):
        row, column = published.row, published.column
        protocol = published.protocol or column.protocol
        recipes = [UNTRAINED] if row.role == "random" else [row.recipe, *row.beside]
        for recipe in filter(None, recipes):
            key = recipe, frozenset(row.heads), published.task, protocol, column.metric
            entries.append((key, (tables[published.table.id], index, published)))
    return grouped(entries)


def verdict_words(pairs: Iterable[Pair]) -> dict[tuple[str, str], str]:
    """Return verdicts with interval and table, by record and metric."""
    texts = grouped(
        ((file, pair.ours.metric), f"{pair.verdict_text} ({pair.printed.where})")
        for pair in pairs
        if not pair.no_verdict
        for file in pair.ours.files
    )
    return {key: "; ".join(dict.fromkeys(verdicts)) for key, verdicts in texts.items()}


def comparison_parts(table: Table, pairs: Sequence[Pair], rows: Iterable[Number]) -> list[Part]:
    """Return a table of differences, and reasons for rows without one.

    pairs: pairs of this table. rows: our rows under the paper's protocol on full data.
    """
    compared = {pair.ours.row for pair in pairs}
    uncompared = [row for row in rows if row.row not in compared]
    if not pairs and not uncompared:
        return ["No comparable row yet: nothing was run under the paper's protocol on full data."]
    tasks = [pair.printed.task for pair in pairs if not pair.no_verdict]
    lines = [run_deviation(task).line(task.partition("/")[0]) for task in tasks]
    unjudged = grouped((pair.no_verdict, pair.printed.row.label) for pair in pairs)
    lines += [
        f"- no verdict ({', '.join(dict.fromkeys(labels))}): {reason}."
        for reason, labels in unjudged.items()
        if reason
    ]
    for pair in pairs:
        if pair.is_variant:
            recipe, row = pair.ours.backbone.recipe, pair.printed.row
            lines.append(
                f"- → {plain(pair.ours.label)} is not a run of the printed row {row.label} "
                f"(`{row.recipe}`), but of a variant: `{recipe}`, {row.beside[recipe]}."
            )
    lines += [
        f"- {plain(row.label)}: {reason_without_number(table, row.backbone)}." for row in uncompared
    ]
    page_parts: list[Part] = [grid(HEADER, map(pair_texts, pairs), num_left=3)] if pairs else []
    return [*page_parts, "\n".join(dict.fromkeys(lines))]


def pair_texts(pair: Pair) -> list[str]:
    """Return the texts of a pair in the columns of HEADER."""
    label = pair.printed.row.label
    return [
        f"→ {plain(pair.ours.label)}",
        f"{label} (variant)" if pair.is_variant else label,
        pair.printed.label,
        pair.ours.score.text(2) if pair.ours.score else "",
        f"{pair.printed.value}",
        f"{pair.difference.points:+.2f}",
        pair.difference.interval_text(),
        pair.verdict,
    ]


def reason_without_number(table: Table, backbone: Backbone) -> str:
    """Return why a table has no published number for a backbone."""
    if not backbone.method:
        reason = "the file does not record its training (declare it with `--trained-with RECIPE`)"
        return f"no published counterpart: {reason}"
    rows = rows_of_recipe(table, backbone)
    if not rows:
        origin = backbone.recipe or backbone.method
        origin = "a random initialization" if backbone.is_untrained else origin
        heads = f" with heads {', '.join(backbone.heads)} alone" if backbone.heads else ""
        return f"no published counterpart: the table has no row of {origin}{heads}"
    if any(not pretraining_differences(row, backbone) for row in rows):
        return "no number to compare"
    differences = "; ".join(pretraining_differences(rows[0], backbone))
    return f"no verdict: the paper's {rows[0].label} differs ({differences})"


def missing_row_lines(table: Table, rows: Iterable[Number]) -> list[str]:
    """Return a line per published row without our result.

    It names the missing runs. The last line names rows that are not implemented. rows: our rows
    under the paper's protocol on full data.
    """
    backbones = [row.backbone for row in rows]
    measured = [
        row
        for backbone in backbones
        for row in rows_of_recipe(table, backbone)
        if backbone.method and backbone.recipe not in row.beside
        if not pretraining_differences(row, backbone)
    ]
    missing_rows = [row for row in table.rows if row not in measured]
    missing_rows += [
        point
        for point in table.points
        if all(pretraining_differences(point, b) for b in backbones if b.recipe == point.recipe)
    ]
    missing_runs = [(row.label, _needed_runs(row)) for row in missing_rows]
    lines = [f"- {label}: {text}" for label, text in missing_runs if text]
    if unbuilt := ", ".join(dict.fromkeys(label for label, text in missing_runs if not text)):
        lines.append(f"- not implemented here: {unbuilt}")
    return list(dict.fromkeys(lines))


def _needed_runs(row: Row) -> str:
    """Return the missing runs of a row; empty if not implemented."""
    if row.role == "random":
        return "needs no pre-training, `--random`"
    if not row.recipe:
        return ""
    if not row.method:
        file = next(public.file for public in PUBLIC_FILES if public.recipe == row.recipe)
        return f"needs the published weights `{file}`"
    numbers, names = ",".join(map(str, row.heads.values())), " and ".join(row.heads)
    heads = f", then `--heads {numbers}` ({names})" if row.heads else ""
    return f"needs pre-training `{row.recipe}`{heads}"


def rows_of_recipe(table: Table, backbone: Backbone) -> list[Row]:
    """Return the rows with the backbone's recipe and heads, of any length."""
    if backbone.is_untrained:
        return [row for row in table.rows if row.role == "random"]
    return [
        row
        for row in table.rows
        if backbone.recipe
        and backbone.recipe in (row.recipe, *row.beside)
        and set(backbone.heads) == set(row.heads)
    ]


def pretraining_differences(row: Row, ours: Backbone) -> list[str]:
    """Return differences in pre-training, except for omitted settings."""
    paper = row.pretrain
    differences = []
    if paper.arch is not None and paper.arch != ours.arch:
        differences.append(f"network {paper.arch}, ours {ours.arch}")
    if paper.data is not None and not trained_on(paper.data, ours):
        differences.append(f"data {paper.data}, ours {ours.data}")
    if paper.epochs is not None and str(paper.epochs) != ours.epochs:
        differences.append(f"epochs {paper.epochs}, ours {ours.epochs}")
    if norm := norm_difference(paper.norm_groups, ours.norm_groups):
        differences.append(norm)
    if ours.changed:
        differences.append(f"ours changed its recipe in {ours.changed}")
    if ours.texture == STAND_IN_TEXTURE:
        differences.append(f"textures by style transfer, ours by {STAND_IN_TEXTURE}")
    return differences


def norm_difference(paper: int | None, ours: int | None) -> str:
    """Return the difference in groups of shuffled batch norm, if any.

    A paper that does not state the number (0) has at least two groups: one group shuffles nothing.
    """
    if paper is None or ours is None or (ours == paper if paper else ours > 1):
        return ""
    return f"groups of shuffled batch norm {paper or 'not stated, at least 2'}, ours {ours}"


def norm_group_lines(rows: Sequence[Row]) -> list[str]:
    """Return lines on the rows' groups of shuffled batch norm."""
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
            f"The paper does not state the number of groups (GPUs) of shuffled batch norm of "
            f"{silent}. Ours are GPUs times `--bn-splits`; a run with one group, which shuffles "
            "nothing, has no verdict."
        )
    return lines


def trained_on(data: str, backbone: Backbone) -> bool:
    """Return whether a backbone was pre-trained on a dataset.

    Its recipe or folder must name the set. The number of images, if known, must fit within 1 %.
    """
    from transfer.datasets.catalog import DATASETS  # some readers of records need no dataset

    count = re.search(r"(\d+) images", backbone.data)
    num_images = DATASETS[data].counts["trainval"]
    right_size = not count or math.isclose(int(count[1]), num_images, rel_tol=0.01)
    tokens = re.findall(r"[a-z0-9+]+", f"{backbone.recipe} {backbone.data}".lower())
    return data in tokens and right_size


def pretraining_data(backbone: Backbone, backbones: Iterable[Backbone]) -> str:
    """Return the name of the pre-training dataset; empty if unknown.

    The papers' name has precedence over the folder's. backbones: all of the report. If their
    folders contain the same images (by fingerprint), all get the most frequent name.
    """
    published_name = next((name for name in PRETRAINING_DATA if trained_on(name, backbone)), "")
    _, sign, fingerprint = backbone.data.partition(", fingerprint ")
    if published_name or not sign:
        return published_name or backbone.data
    same_images = (other.data for other in backbones if other.data.endswith(sign + fingerprint))
    folders = Counter(data.removesuffix(sign + fingerprint) for data in same_images)
    return f"{folders.most_common(1)[0][0]})"
