"""Overview of backbones and tasks, comparison of methods, and curves."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations

from benchmarks.results.differences import LEVEL, Score, difference, holm, with_errors
from benchmarks.results.numbers import Block, ColumnKey, Number, blocks, run_name
from benchmarks.results.published import AVERAGE, published_count_words, transfer_tasks
from benchmarks.results.records import Run, UnusedFile, grouped
from benchmarks.results.tables import (
    RULE,
    Line,
    Notes,
    Page,
    Part,
    backbone_lines,
    csv_text,
    our_cell,
    our_table,
    plain,
    row_label,
)
from transfer.frozen.rankme import RANKME


def overview_page(
    numbers: Sequence[Number],
    unused: Iterable[UnusedFile],
    pages: Sequence[tuple[str, str]],
    command: str,
) -> Page:
    """Return the overview.

    pages: title and file name of the other pages.
    """
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
        page += [
            "## Comparison with published numbers",
            "\n".join(f"- [{title}]({file})" for title, file in pages),
        ]
        page.append(f"{published_count_words()}.")
    if warnings := [f"- warning: {plain(str(file))}" for file in unused]:
        page += ["## Files that are not used", "\n".join(warnings)]
    return page


def _columns(block: Block) -> list[Number]:
    """Return a number per column; the twelve tasks come first."""
    from transfer.tasks import TASKS, reading_of

    # the first protocol variant of a task determines its position
    order = {reading_of(key)[0]: i for i, key in reversed([*enumerate(TASKS)])}
    twelve = (*transfer_tasks(), AVERAGE)
    firsts = {number.column: number for number in reversed(block.numbers)}
    protocols = list(dict.fromkeys(name for task, name in block.columns if task in twelve))

    def sort_key(number: Number) -> tuple[int, int, int, ColumnKey]:
        if number.task in twelve:
            index = protocols.index(number.protocol_name), twelve.index(number.task)
            return 0, *index, number.column
        return 1, 0, order.get(number.task, len(order)), number.column

    return sorted(firsts.values(), key=sort_key)


def _table_of_tasks(block: Block, columns: Sequence[Number], notes: Notes) -> list[Part]:
    """Return the table of one task group, its metrics and protocols."""
    from transfer.tasks import key_of

    short = re.compile("^transfer_linear/|_linear$|_knn$")
    labels = [short.sub("", key_of(*column.column)) for column in columns]
    # the key of a protocol variant, such as in1k_linear@co2, already names its protocol
    others = {i: c.protocol_name for i, c in enumerate(columns) if "@" not in labels[i]}
    if len({*others.values()}) > 1:
        labels = [f"{text} {others[i]}" if i in others else text for i, text in enumerate(labels)]
    filled = {(number.row, number.column) for number in block.numbers}
    lines = [
        Line(
            texts=[plain(row_label(row, block.rows))],
            numbers=[our_cell(block.number(row, c.column, c.primary_metric)) for c in columns],
            ours=True,
        )
        for row in block.rows
        if any((row.row, c.column) in filled for c in columns)
    ]
    named = [*zip(labels, columns, strict=True)]
    table, shared_notes = our_table(lines, [(label, c.task) for label, c in named], notes)
    metrics = grouped((c.primary_metric, label) for label, c in named if c.task != AVERAGE)
    metric_texts = [
        metric if len(metrics) == 1 else f"{metric} of {', '.join(metric_labels)}"
        for metric, metric_labels in sorted(metrics.items())
    ]
    texts = [f"- Metric: {'; '.join(metric_texts)}."]
    if protocols := block.protocols(column.column for column in columns):
        texts.append(f"- All rows: {'; '.join([f'protocol {protocols}', *shared_notes])}.")
    return [table, "\n".join(texts)]


def method_page(numbers: Sequence[Number], command: str) -> Page:
    """Return a page that compares methods of one recipe size, METHOD/SIZE.

    It is empty if no two methods have a result on the same task.
    """
    all_blocks = blocks(numbers)
    rows = {row.row: row for block in reversed(all_blocks) for row in block.rows}
    in_order = sorted(  # random initializations come first
        rows.values(), key=lambda r: (r.run.method != "random", *r.run.identity, r.conditions)
    )
    by_size = grouped((row.run.recipe.partition("/")[2], row) for row in in_order)
    parts = [part for s in sorted(by_size) if s for part in _methods(s, by_size[s], all_blocks)]
    if not parts:
        return []
    text = "Percent; one row per method, all of one size of recipe. Only numbers of one column may "
    return ["# Methods", f"{text}be compared. Made by `{command}`.", *parts]


def _methods(size: str, rows: Sequence[Number], all_blocks: Sequence[Block]) -> list[Part]:
    from transfer.tasks import key_of

    keys = {row.row for row in rows}
    columns: list[tuple[Block, Number]] = []
    row_keys: set[tuple[object, ...]] = set()
    for block in all_blocks:
        results = grouped((n.column, n) for n in block.numbers if n.runs and n.row in keys)
        for column in block.columns:
            column_numbers = results.get(column, [])
            # columns in which two methods (other than random initializations) have a result
            if len({number.run.method for number in column_numbers} - {"random"}) > 1:
                columns.append((block, column_numbers[0]))
                row_keys |= {number.row for number in column_numbers}
    if not columns:
        return []
    rows = [row for row in rows if row.row in row_keys]
    lines = [
        Line(
            texts=[plain(row_label(row, rows))],
            numbers=[our_cell(b.number(row, c.column, c.primary_metric)) for b, c in columns],
            ours=True,
        )
        for row in rows
    ]
    notes = Notes()
    tasks = [key_of(*column.column) for _, column in columns]
    headings = [
        (f"{task} {column.primary_metric}", column.task)
        for task, (_, column) in zip(tasks, columns, strict=True)
    ]
    table, shared_notes = our_table(lines, headings, notes)
    texts = [
        f"- {task}: protocol {block.protocols([c.column])}; {block.heading.lower()}."
        for task, (block, c) in zip(tasks, columns, strict=True)
    ]
    texts += [f"- All rows: {'; '.join(shared_notes)}."] if shared_notes else []
    return [
        f"## {size}",
        RULE,
        table,
        "\n".join(texts),
        "\n".join(_difference_lines(rows, lines, headings)),
        notes.list(),
        *backbone_lines(row.run for row in rows),
    ]


def _difference_lines(
    rows: Sequence[Number], lines: Sequence[Line], headings: Sequence[tuple[str, str]]
) -> Iterator[str]:
    """Yield how many backbones differ, per set of backbones with results in the same columns.

    headings: label and task of each column. A column without known errors is left out.
    """
    sets = grouped(
        (tuple(i for i, cell in enumerate(line.numbers) if cell.score), (row.run, line))
        for row, line in zip(rows, lines, strict=True)
    )
    for columns, members in sets.items():
        runs = [run for run, _ in members]
        trained = [i for i, run in enumerate(runs) if run.method != "random"]
        tests: list[tuple[str, str, list[Score]]] = []
        for column in columns:
            cells = [line.numbers[column] for _, line in members]
            scores = with_errors([cell.score for cell in cells if cell.score])
            if all(score.finite and score.variance_over_images >= 0 for score in scores):
                tests.append((*headings[column], scores))
        if len(trained) < 3 or not tests:
            continue
        labels = [label for label, *_ in tests]
        column_text = ", ".join(labels)
        pairs = [*combinations(trained, 2)]
        p_values = [
            [difference(scores[i], scores[j], task).p for _, task, scores in tests]
            for i, j in pairs
        ]
        uncorrected, corrected = _num_significant(p_values, any)
        yield (
            f"- {column_text}: {uncorrected} of {len(pairs)} pairs of the {len(trained)} trained "
            f"backbones differ in at least one column (p < {LEVEL}, uncorrected; "
            f"{corrected} after Holm's correction over {len(pairs) * len(tests)} tests)."
        )
        methods = [i for i in trained if runs[i].method != "supervised"]
        for random_index in (i for i, run in enumerate(runs) if run.method == "random"):
            p_values, worse = [], []
            for i in methods:
                gains = [difference(s[i], s[random_index], task) for _, task, s in tests]
                p_values.append([gain.p if gain.points > 0 else 1.0 for gain in gains])
                missed = [t for t, p in zip(labels, p_values[-1], strict=True) if p >= LEVEL]
                worse += [f"{runs[i].backbone} ({', '.join(missed)})"] if missed else []
            uncorrected, corrected = _num_significant(p_values, all)
            yield (
                f"- {column_text}: {uncorrected} of {len(methods)} backbones trained without "
                f"labels are better than {runs[random_index].backbone} in every column "
                f"(p < {LEVEL}, uncorrected; {corrected} after Holm's correction over "
                f"{len(methods) * len(tests)} tests); not better, uncorrected: "
                f"{', '.join(worse) or 'none'}."
            )


def _num_significant(
    p_values: Sequence[Sequence[float]], condition: Callable[[Iterable[bool]], bool]
) -> tuple[int, int]:
    """Return the number of significant rows, without and with Holm's correction.

    condition: any or all of the p-values of a row.
    """
    corrected = iter(holm(p for row in p_values for p in row))
    return (
        sum(condition(p < LEVEL for p in row) for row in p_values),
        sum(condition([next(corrected) for _ in row]) for row in p_values),
    )


def curve_of(number: Number) -> str:
    """Return the name of a snapshot's curve: pre-training run and conditions."""
    run = run_name(number.run.backbone)
    return f"{run} ({number.conditions})" if number.conditions else run


def curve_positions(runs: Iterable[Run]) -> tuple[str, dict[str, float]]:
    """Return the unit of a curve's horizontal axis, and the position of each backbone on it.

    It is the epoch. If a followed run has checkpoints without one, or different weights of one
    epoch, it is the step, or else the checkpoint's number in the order of the files' times.
    """
    by_name = {run.backbone: run for run in runs}
    followed = [run for run in by_name.values() if run.modified]
    for unit, field in (("epoch", "epochs"), ("step", "step")):
        values = {name: getattr(run, field) for name, run in by_name.items()}
        weights = {(values[name], run.sha256) for name, run in by_name.items()}
        is_clear = all(values.values()) and len(weights) == len({*values.values()})
        if is_clear or not followed:
            return unit, {name: float(value or 0) for name, value in values.items()}
    ordered = sorted(by_name.values(), key=lambda run: (run.modified, run.backbone))
    return "checkpoint", {run.backbone: float(n) for n, run in enumerate(ordered, 1)}


def curve_rank(number: Number) -> float | None:
    """Return RankMe of a checkpoint of a followed run; None for others."""
    stored = number.runs[0].details.get(RANKME)
    return float(stored["value"]) if stored else None


def curve_files(snapshots: Sequence[Number]) -> dict[str, str]:
    """Return a CSV text per curve, by file name.

    It has the epoch and every metric of the task; for followed runs, also RankMe. Results in
    different columns of the overview are in different files.
    """
    curves = grouped(
        ((n.reasons, n.version, n.column, run_name(n.run.backbone), n.conditions), n)
        for n in snapshots
        if n.score and n.task != AVERAGE
    )
    files = {}
    for (reasons, version, (task, _), run, conditions), members in curves.items():
        first = members[0].runs[0]
        # conditions that prevent comparison with other results
        fields = [task, first.protocol, first.schedule, reasons.altered]
        data = reasons.data.replace("subset", "excerpt")  # file names of earlier versions stay
        fields += [data, f"other {version}" if version else "", conditions]
        name_parts = [re.sub(r"[ /]+", "-", field) for field in fields if field]
        unit, positions = curve_positions(n.run for n in members)
        values = {(positions[n.run.backbone], n.metric): n.score.mean for n in members if n.score}
        for n in members:
            if (rank := curve_rank(n)) is not None:
                values[positions[n.run.backbone], RANKME] = rank
        # head entropy is undefined if no image is classified correctly
        metrics = list(dict.fromkeys(metric for _, metric in values))
        rows = [
            [f"{x:.10g}", *(f"{values[x, m]:.4f}" if (x, m) in values else "" for m in metrics)]
            for x in sorted({position for position, _ in values})
        ]
        files[".".join([run, *name_parts, "csv"])] = csv_text([unit, *metrics], rows)
    return files
