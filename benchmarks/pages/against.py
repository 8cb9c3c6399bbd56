"""Our comparable numbers beside the published ones of the same method and pre-training."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.pages.blocks import NO_ROWS, Block, sort_into_blocks
from benchmarks.pages.entries import NOT_A_NUMBER, Score, table_entry
from benchmarks.pages.markdown import table
from benchmarks.pages.matching import pretraining_differences, published_counterparts
from benchmarks.pages.published import Column, Paper, Row, Table, papers
from benchmarks.pages.records import Model, Result
from benchmarks.pages.verdict import Verdict, tolerance, verdict

HEADER = ("ours", "published", "number", "ours", "paper", "diff.", "verdict", "pass / warn up to")


@dataclass(frozen=True, kw_only=True)
class Pair:
    """One number that we and the paper have."""

    model: Model
    row: Row
    column: Column
    ours: Score
    paper: float
    no_verdict: str
    """Reason why the number is not judged; empty if it is."""
    files: tuple[str, ...] = ()
    """Paths of our number's records, below the results."""

    @property
    def judged(self) -> bool:
        """Return whether the number gets a verdict."""
        return not self.no_verdict

    @property
    def difference(self) -> float:
        """Return ours minus the paper's."""
        return self.ours.mean - self.paper

    @property
    def verdict(self) -> Verdict:
        """Return the verdict, which counts only if the number is judged."""
        return verdict(self.difference, self.task)

    @property
    def task(self) -> str:
        """Return the id of the task that measures the number."""
        return self.row.task or self.column.task


def comparison_lines(published: Table, results: Sequence[Result]) -> list[str]:
    """Return a table of differences, and a line for each of our rows that cannot be compared."""
    if not comparable_block(results).models:
        return ["No comparable row yet: nothing was run under the paper's protocol on full data."]
    pairs, apart = compared_numbers(published, results)
    rows = [_line(pair) for pair in pairs]
    grid = [table(HEADER, rows, left=3), ""] if rows else []
    sources = dict.fromkeys(_tolerance_source(pair.task) for pair in pairs if pair.judged)
    remarks = dict.fromkeys(_remark(pair) for pair in pairs if pair.model.recipe in pair.row.beside)
    lines = [f"- {model.label}: {why or 'no number to compare'}." for model, why in apart.items()]
    return [*grid, *sources, *_unjudged_lines(pairs), *remarks, *lines]


def compared_numbers(
    published: Table, results: Sequence[Result]
) -> tuple[list[Pair], dict[Model, str]]:
    """Return every number that we and the paper have, and our other rows with the reason."""
    block = comparable_block(results)
    pairs: list[Pair] = []
    apart: dict[Model, str] = {}
    for model in block.models:
        rows, why = published_counterparts(published, model)
        of_model = [pair for row in rows for pair in _pairs(published, block, model, row)]
        pairs += of_model
        if not of_model:
            apart[model] = why
    return pairs, apart


def judged_pairs(results: Sequence[Result]) -> Iterator[tuple[Paper, Table, Pair]]:
    """Yield every number with a verdict, and where it is printed."""
    for paper in papers():
        for published in paper.tables:
            for pair in compared_numbers(published, results)[0]:
                if pair.judged:
                    yield paper, published, pair


def comparable_block(results: Sequence[Result]) -> Block:
    """Return our rows under the papers' protocols on full data."""
    blocks = sort_into_blocks(results, ())
    return next((block for block in blocks if block.comparable), NO_ROWS)


def missing_row_lines(published: Table, results: Sequence[Result]) -> list[str]:
    """Return a line for each published row without a result of ours: the runs that it needs.

    Only results under the paper's protocol on full data count. The last line names the rows that
    nothing here can produce.
    """
    models = comparable_block(results).models
    measured = [
        row
        for model in models
        for row in published_counterparts(published, model)[0]
        if model.recipe not in row.beside
    ]
    absent = [row for row in published.rows if row not in measured]
    absent += [point for point in published.points if not any(_is_point(point, m) for m in models)]
    lines = [f"- {row.label}: {needs}" for row in absent if (needs := _needed_runs(row))]
    unbuilt = dict.fromkeys(row.label for row in absent if not _needed_runs(row))
    lines += [f"- not implemented here: {', '.join(unbuilt)}"] if unbuilt else []
    return list(dict.fromkeys(lines))


def _is_point(point: Row, model: Model) -> bool:
    """Return whether a model comes from the recipe of a point of a figure."""
    return point.recipe == model.recipe and not pretraining_differences(point, model)


def _needed_runs(row: Row) -> str:
    """Return the runs that a row needs; empty if nothing here can produce it."""
    if row.role == "random":
        return "needs no pre-training, `--random`"
    if not row.recipe:
        return ""
    if not row.heads:
        return f"needs pre-training `{row.recipe}`"
    numbers = ",".join(map(str, row.heads.values()))
    return (
        f"needs pre-training `{row.recipe}`, then `--heads {numbers}` ({' and '.join(row.heads)})"
    )


def _tolerance_source(task: str) -> str:
    """Return the source of a tolerance; one line for all twelve data sets of linear transfer."""
    return f"- {task.partition('/')[0]}: {tolerance(task).source}."


def _unjudged_lines(pairs: Sequence[Pair]) -> list[str]:
    """Return a line for each reason why numbers are not judged, with their rows."""
    rows: dict[str, dict[str, None]] = {}
    for pair in pairs:
        if pair.no_verdict and pair.ours.finite:
            rows.setdefault(pair.no_verdict, {})[pair.row.label] = None
    return [f"- not judged ({', '.join(labels)}): {why}." for why, labels in rows.items()]


def _remark(pair: Pair) -> str:
    """Return the line on a recipe that is another reading of the printed row."""
    recipe, row = pair.model.recipe, pair.row
    return (
        f"- → {pair.model.label} is no run of the printed row {row.label} (`{row.recipe}`), but "
        f"another reading of it: `{recipe}`, {row.beside[recipe]}."
    )


def _pairs(published: Table, block: Block, model: Model, row: Row) -> list[Pair]:
    """Return every number of a row that we have, too.

    Numbers that were measured elsewhere stand beside ours under the protocol of the column.
    """
    return [
        Pair(
            model=model,
            row=row,
            column=column,
            ours=ours,
            paper=paper,
            no_verdict=row.no_verdict(column) or ("" if ours.finite else NOT_A_NUMBER),
            files=entry.files,
        )
        for column in published.columns
        for protocol in [row.protocol_of(column)]
        if (paper := row.number(column)) is not None
        for task in [row.task or column.task]
        for entry in [table_entry(block, model, task, protocol or column.protocol, column.metric)]
        if (ours := entry.score) is not None
    ]


def _line(pair: Pair) -> list[str]:
    limits = tolerance(pair.task)
    unjudged = "not judged" if pair.ours.finite else "–"
    label = f"{pair.row.group} {pair.column.label}" if pair.row.task else pair.column.label
    other_reading = " (another reading)" if pair.model.recipe in pair.row.beside else ""
    return [
        f"→ {pair.model.label}",
        pair.row.label + other_reading,
        label,
        pair.ours.text(2),
        f"{pair.paper}",
        f"{pair.difference:+.2f}" if pair.ours.finite else "–",
        pair.verdict if pair.judged else unjudged,
        f"{limits.passes} / {limits.warns}" if pair.judged else "–",
    ]
