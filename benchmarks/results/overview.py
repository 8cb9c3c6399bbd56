"""Pages of ours: backbones and tasks in parts per schedule; methods compared; curves."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations, groupby

from benchmarks.results.differences import LEVEL, Difference, Score, difference, holm, with_errors
from benchmarks.results.numbers import Block, ColumnKey, Number, blocks, run_name
from benchmarks.results.published import AVERAGE, published_count_words, transfer_tasks
from benchmarks.results.records import UnusedFile, grouped
from benchmarks.results.tables import (
    RULE,
    Notes,
    OurRow,
    Page,
    Part,
    backbone_lines,
    csv_text,
    our_grid,
    plain,
    row_label,
)


def overview_page(
    numbers: Sequence[Number],
    unused: Iterable[UnusedFile],
    pages: Sequence[tuple[str, str]],
    command: str,
) -> Page:
    """Return the page; pages: title and file name of the other pages."""
    notes = Notes()
    page: Page = [
        "# Overview",
        "Percent; one row per backbone, one column per task. Only rows of one table may be "
        f"compared: they share protocol, length and data. Made by `{command}`.",
        RULE if numbers else "No results yet.",
    ]
    for block in blocks(numbers):
        page.append(f"## {block.heading}")
        headings = grouped((column.heading, column) for column in _columns(block))
        for heading, columns in headings.items():
            page += [f"### {heading}", *_table_of_tasks(block, columns, notes)]
    page += ["## Notes", notes.list()] if notes else []
    runs = sorted((number.run for number in numbers), key=lambda run: run.identity)
    page += ["## Backbones", *backbone_lines(runs)] if runs else []
    if pages:
        page += ["## Beside the papers", "\n".join(f"- [{title}]({file})" for title, file in pages)]
        page.append(f"{published_count_words()}.")
    if warnings := [f"- warning: {plain(str(file))}" for file in unused]:
        page += ["## Files that are not used", "\n".join(warnings)]
    return page


def _columns(block: Block) -> list[Number]:
    """Return a number of each column; the twelve tasks and their average come first."""
    from transfer.tasks import TASKS, reading_of

    # for several readings of a task the first one counts
    order = {reading_of(key)[0]: i for i, key in reversed([*enumerate(TASKS)])}
    twelve = (*transfer_tasks(), AVERAGE)
    firsts = {number.column: number for number in reversed(block.numbers)}
    readings = list(dict.fromkeys(name for task, name in block.columns if task in twelve))

    def place(number: Number) -> tuple[int, int, int, ColumnKey]:
        if number.task in twelve:
            return 0, readings.index(number.reading), twelve.index(number.task), number.column
        return 1, 0, order.get(number.task, len(order)), number.column

    return sorted(firsts.values(), key=place)


def _table_of_tasks(block: Block, columns: Sequence[Number], notes: Notes) -> list[Part]:
    """Return the table of one kind of task, and its metrics, protocols and common notes."""
    several = len({column.reading for column in columns}) > 1
    short = re.compile("^transfer_linear/|_linear$|_knn$")
    labels = [short.sub("", c.task) + (f" {c.reading}" if several else "") for c in columns]
    filled = {(number.row, number.column) for number in block.numbers}
    rows = [
        OurRow(
            row_label(row, block.rows),
            [block.number(row, c.column, c.primary_metric) for c in columns],
        )
        for row in block.rows
        if any((row.row, c.column) in filled for c in columns)
    ]
    named = [*zip(labels, columns, strict=True)]
    table, of_all = our_grid(rows, [(label, c.task) for label, c in named], notes)
    metrics = grouped((c.primary_metric, label) for label, c in named if c.task != AVERAGE)
    words = [
        metric if len(metrics) == 1 else f"{metric} of {', '.join(own)}"
        for metric, own in sorted(metrics.items())
    ]
    lines = [f"- Metric: {'; '.join(words)}."]
    if protocols := block.protocols(column.column for column in columns):
        lines.append(f"- All rows: {'; '.join([f'protocol {protocols}', *of_all])}.")
    return [table, "\n".join(lines)]


def method_page(numbers: Sequence[Number], command: str) -> Page:
    """Return the page of backbones whose recipes, METHOD/SIZE, have one size.

    It is empty if no two methods have a result on the same task.
    """
    all_blocks = blocks(numbers)
    rows = {
        row.row: row
        for block in reversed(all_blocks)
        for row in block.rows
        if "/" in row.run.recipe
    }

    def place(row: Number) -> tuple[str, bool, tuple[str, ...]]:
        """Return the sort key: recipe size, then random initializations first."""
        return (
            row.run.recipe.partition("/")[2],
            row.run.method != "random",
            (*row.run.identity, row.conditions),
        )

    parts: Page = []
    for size, own in groupby(sorted(rows.values(), key=place), key=lambda row: place(row)[0]):
        parts += _methods(size, [*own], all_blocks)
    if not parts:
        return []
    text = "Percent; one row per method, all of one size of recipe. Only numbers of one column may "
    return ["# Methods", f"{text}be compared. Made by `{command}`.", *parts]


def _methods(size: str, rows: Sequence[Number], all_blocks: Sequence[Block]) -> list[Part]:
    keys = {row.row for row in rows}
    columns: list[tuple[Block, Number]] = []
    shown: set[tuple[object, ...]] = set()
    for block in all_blocks:
        results = grouped((n.column, n) for n in block.numbers if n.runs and n.row in keys)
        for column in block.columns:
            own = results.get(column, [])
            # in which two methods have a result, without random initializations
            if len({number.run.method for number in own} - {"random"}) > 1:
                columns.append((block, own[0]))
                shown |= {number.row for number in own}
    if not columns:
        return []
    rows = [row for row in rows if row.row in shown]
    table_rows = [
        OurRow(
            row_label(row, rows), [b.number(row, c.column, c.primary_metric) for b, c in columns]
        )
        for row in rows
    ]
    notes = Notes()
    headings = [(f"{column.task} {column.primary_metric}", column.task) for _, column in columns]
    table, of_all = our_grid(table_rows, headings, notes)
    lines = [
        f"- {c.task}: protocol {block.protocols([c.column])}; {block.heading.lower()}."
        for block, c in columns
    ]
    lines += [f"- All rows: {'; '.join(of_all)}."] if of_all else []
    scores = [
        (row, [n.score for n in own.numbers]) for row, own in zip(rows, table_rows, strict=True)
    ]
    return [
        f"## {size}",
        RULE,
        table,
        "\n".join(lines),
        "\n".join(_difference_lines(scores, headings)),
        notes.list(),
        *backbone_lines(row.run for row in rows),
    ]


def _difference_lines(
    scores: Sequence[tuple[Number, Sequence[Score | None]]], headings: Sequence[tuple[str, str]]
) -> Iterator[str]:
    """Yield how many backbones differ, for those that have results in the same columns.

    headings: label and task of each column. A column without known errors is left out.
    """
    sets = grouped(
        (tuple(i for i, score in enumerate(own) if score), (row.run, own)) for row, own in scores
    )
    for columns, members in sets.items():
        runs = [run for run, _ in members]
        trained = [i for i, run in enumerate(runs) if run.method != "random"]
        tests: list[tuple[str, dict[tuple[int, int], Difference]]] = []
        for column in columns:
            label, task = headings[column]
            values = with_errors([score for _, own in members if (score := own[column])])
            differences = {
                (i, j): difference(values[i], values[j], task)
                for i, j in combinations(range(len(values)), 2)
            }
            if all(one.p <= 1 for one in differences.values()):  # NaN: errors are not known
                tests.append((label, differences))
        if len(trained) < 3 or not tests:
            continue
        where = ", ".join(label for label, _ in tests)
        pairs = [*combinations(trained, 2)]
        p_values = [[differences[pair].p for _, differences in tests] for pair in pairs]
        alone, corrected = _num_significant(p_values, any)
        yield (
            f"- {where}: {alone} of {len(pairs)} pairs of the {len(trained)} trained backbones "
            f"differ in at least one column (p < {LEVEL}, uncorrected; {corrected} after Holm's "
            f"correction over {len(pairs) * len(tests)} tests)."
        )
        methods = [i for i in trained if runs[i].method != "supervised"]
        for other in (i for i, run in enumerate(runs) if run.method == "random"):
            p_values = [[_p_if_better(d, i, other) for _, d in tests] for i in methods]
            alone, corrected = _num_significant(p_values, all)
            worse = [
                f"{runs[i].backbone} ({', '.join(missed)})"
                for i, own in zip(methods, p_values, strict=True)
                if (missed := [test[0] for test, p in zip(tests, own, strict=True) if p >= LEVEL])
            ]
            yield (
                f"- {where}: {alone} of {len(methods)} backbones trained without labels are better "
                f"than {runs[other].backbone} in every column (p < {LEVEL}, uncorrected; "
                f"{corrected} after Holm's correction over {len(methods) * len(tests)} tests); "
                f"not better, uncorrected: {', '.join(worse) or 'none'}."
            )


def _p_if_better(differences: dict[tuple[int, int], Difference], first: int, second: int) -> float:
    """Return the p-value of a difference if the first number is higher, else 1."""
    apart = differences[min(first, second), max(first, second)]
    is_better = apart.points > 0 if first < second else apart.points < 0
    return apart.p if is_better else 1.0


def _num_significant(
    p_values: Sequence[Sequence[float]], condition: Callable[[Iterable[bool]], bool]
) -> tuple[int, int]:
    """Return in how many rows of p-values any, or all, are significant: alone, and after Holm."""
    corrected = iter(holm(p for row in p_values for p in row))
    return (
        sum(condition(p < LEVEL for p in row) for row in p_values),
        sum(condition([next(corrected) for _ in row]) for row in p_values),
    )


def curve_of(number: Number) -> str:
    """Return the curve of a snapshot: its pre-training run, and its conditions if they differ."""
    run = run_name(number.run.backbone)
    return f"{run} ({number.conditions})" if number.conditions else run


def _epoch(number: Number) -> float:
    return float(number.run.epochs or 0)


def curve_files(snapshots: Sequence[Number]) -> dict[str, str]:
    """Return a CSV text per curve, by file name, with the epoch and every metric of the task.

    Results that do not share a column of the page do not share a file either.
    """
    curves = grouped(
        ((block.reasons, block.version, column, run_name(n.run.backbone), n.conditions), (block, n))
        for block in blocks(snapshots)
        for column in block.columns
        for n in block.numbers
        if n.column == column and n.score
    )
    files = {}
    for (reasons, version, column, run, conditions), own in curves.items():
        block, first = own[0]
        # the conditions under which a block's numbers may not be compared with others
        words = [first.task, block.protocols([column]), first.runs[0].schedule, reasons.altered]
        data = reasons.data.replace("subset", "excerpt")  # file names of earlier versions stay
        words += [data, f"other {version}" if version else "", conditions]
        parts = [re.sub(r"[ /]+", "-", word) for word in words if word]
        values = {(_epoch(n), n.metric): n.score.mean for _, n in own if n.score}
        # heads have no entropy where no image is right
        metrics = list(dict.fromkeys(metric for _, metric in values))
        rows = [
            [f"{e:g}", *(f"{values[e, m]:.4f}" if (e, m) in values else "" for m in metrics)]
            for e in sorted({epoch for epoch, _ in values})
        ]
        files[".".join([run, *parts, "csv"])] = csv_text(["epoch", *metrics], rows)
    return files
