"""Overview of backbones and tasks, comparison of methods, and curves."""

import re
from collections.abc import Iterable, Sequence

from benchmarks.results.numbers import Block, ColumnKey, Number, blocks, run_name
from benchmarks.results.published import AVERAGE, published_count_words, transfer_tasks
from benchmarks.results.records import RANDOM, Backbone
from benchmarks.results.tables import (
    RULE,
    Grid,
    Line,
    Notes,
    Page,
    Part,
    backbone_lines,
    csv_text,
    mark_best,
    mark_notes,
    our_cell,
    plain,
    row_label,
)
from benchmarks.words import grouped, short_key


def overview_page(
    numbers: Sequence[Number],
    unused: Iterable[str],
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
        page.append(f"## {block.reasons.heading}")
        headings = grouped((column.heading, column) for column in _columns(block))
        for heading, columns in headings.items():
            page += [f"### {heading}", *_table_of_tasks(block, columns, notes)]
    page += ["## Notes", notes.list()] if notes else []
    by_name = sorted(numbers, key=lambda number: number.backbone.identity)
    page += ["## Backbones", *backbone_lines(by_name)] if numbers else []
    if pages:
        page += [
            "## Comparison with published numbers",
            "\n".join(f"- [{title}]({file})" for title, file in pages),
            f"{published_count_words()}.",
        ]
    if warnings := [f"- warning: {plain(line)}" for line in unused]:
        page += ["## Files that are not used", "\n".join(warnings)]
    return page


def _columns(block: Block) -> list[Number]:
    """Return one number of each column. The twelve transfer tasks come first."""
    from transfer.tasks import TASKS, reading_of

    # the first protocol variant of a task determines its position
    order = {reading_of(key)[0]: i for i, key in reversed([*enumerate(TASKS)])}
    transfer_keys = (*transfer_tasks(), AVERAGE)
    column_numbers = {number.column: number for number in reversed(block.numbers)}
    protocols = list(dict.fromkeys(name for task, name in block.columns if task in transfer_keys))

    def sort_key(number: Number) -> tuple[int, int, int, ColumnKey]:
        if number.task in transfer_keys:
            index = protocols.index(number.protocol_name), transfer_keys.index(number.task)
            return 0, *index, number.column
        return 1, 0, order.get(number.task, len(order)), number.column

    return sorted(column_numbers.values(), key=sort_key)


def _table_of_tasks(block: Block, columns: Sequence[Number], notes: Notes) -> list[Part]:
    """Return the table of one task group, its metrics and protocols."""
    from transfer.tasks import key_of

    labels = [short_key(key_of(*column.column)) for column in columns]
    # the key of a protocol variant, such as in1k_linear@co2, already names its protocol
    protocol_names = {i: c.protocol_name for i, c in enumerate(columns) if "@" not in labels[i]}
    if len({*protocol_names.values()}) > 1:
        labels = [
            f"{text} {protocol_names[i]}" if i in protocol_names else text
            for i, text in enumerate(labels)
        ]
    filled = {(number.row, number.column) for number in block.numbers}
    rows = [
        (row_label(row, block.rows), row)
        for row in block.rows
        if any((row.row, c.column) in filled for c in columns)
    ]
    named = [(label, block, column) for label, column in zip(labels, columns, strict=True)]
    table, shared_notes = _our_table(rows, named, notes)
    metrics = grouped((c.primary_metric, label) for label, _, c in named if c.task != AVERAGE)
    metric_texts = [
        metric if len(metrics) == 1 else f"{metric} of {', '.join(metric_labels)}"
        for metric, metric_labels in sorted(metrics.items())
    ]
    texts = [f"- Metric: {'; '.join(metric_texts)}."]
    if protocols := block.protocols(column.column for column in columns):
        texts.append(f"- All rows: {'; '.join([f'protocol {protocols}', *shared_notes])}.")
    return [table, "\n".join(texts)]


def _our_table(
    rows: Sequence[tuple[str, Number]], columns: Sequence[tuple[str, Block, Number]], notes: Notes
) -> tuple[Grid, list[str]]:
    """Return a table of our rows, and the notes common to all.

    rows: label and any number of each row. columns: label, block and any number of each column.
    """
    lines = [
        Line(
            texts=[plain(label)],
            numbers=[our_cell(b.number(row, c.column, c.primary_metric)) for _, b, c in columns],
            kind="ours",
        )
        for label, row in rows
    ]
    shared_notes = mark_notes(lines, notes)
    for index, (*_, column) in enumerate(columns):
        mark_best((line.numbers[index] for line in lines), column.task)
    labels = [label for label, *_ in columns]
    return Grid(texts=["backbone"], numbers=labels, lines=lines), shared_notes


def method_page(numbers: Sequence[Number], command: str) -> Page:
    """Return a page that compares methods of one recipe size, METHOD/SIZE.

    It is empty if no two methods have a result on the same task.
    """
    all_blocks = blocks(numbers)
    rows = {row.row: row for block in reversed(all_blocks) for row in block.rows}
    in_order = sorted(  # random initializations come first
        rows.values(),
        key=lambda r: (r.backbone.method != RANDOM, *r.backbone.identity, r.conditions),
    )
    by_size = grouped((row.backbone.recipe.partition("/")[2], row) for row in in_order)
    parts = [part for s in sorted(by_size) if s for part in _methods(s, by_size[s], all_blocks)]
    if not parts:
        return []
    text = "Percent; one row per method, all of one size of recipe. Only numbers of one column may "
    return ["# Methods", f"{text}be compared. Made by `{command}`.", *parts]


def _methods(size: str, rows: Sequence[Number], all_blocks: Sequence[Block]) -> list[Part]:
    from transfer.tasks import key_of

    keys = {row.row for row in rows}
    columns: list[tuple[str, Block, Number]] = []
    row_keys: set[tuple[object, ...]] = set()
    for block in all_blocks:
        results = grouped((n.column, n) for n in block.numbers if n.runs and n.row in keys)
        for column in block.columns:
            column_numbers = results.get(column, [])
            # columns in which two methods (other than random initializations) have a result
            if len({number.backbone.method for number in column_numbers} - {RANDOM}) > 1:
                first = column_numbers[0]
                label = f"{key_of(*first.column)} {first.primary_metric}"
                columns.append((label, block, first))
                row_keys |= {number.row for number in column_numbers}
    if not columns:
        return []
    rows = [row for row in rows if row.row in row_keys]
    notes = Notes()
    table, shared_notes = _our_table([(row_label(row, rows), row) for row in rows], columns, notes)
    texts = [
        f"- {key_of(*column.column)}: protocol {block.protocols([column.column])}; "
        f"{block.reasons.heading.lower()}."
        for _, block, column in columns
    ]
    texts += [f"- All rows: {'; '.join(shared_notes)}."] if shared_notes else []
    return [
        f"## {size}",
        RULE,
        table,
        "\n".join(texts),
        notes.list(),
        *backbone_lines(rows),
    ]


def curve_of(number: Number) -> str:
    """Return the name of a snapshot's curve: pre-training run and conditions."""
    run = run_name(number.backbone.name)
    return f"{run} ({number.conditions})" if number.conditions else run


def curve_positions(backbones: Iterable[Backbone]) -> tuple[str, dict[str, float]]:
    """Return the unit of a curve's horizontal axis, and the position of each backbone on it.

    It is the epoch. If a followed run has checkpoints without one, or different weights of one
    epoch, it is the step, or else the checkpoint's number in the order of the files' times.
    """
    backbones = [*{backbone.name: backbone for backbone in backbones}.values()]
    for unit, field in (("epoch", "epochs"), ("step", "step")):
        values = {backbone.name: getattr(backbone, field) for backbone in backbones}
        weights = {(values[backbone.name], backbone.sha256) for backbone in backbones}
        is_clear = all(values.values()) and len(weights) == len({*values.values()})
        if is_clear or not any(backbone.modified for backbone in backbones):
            return unit, {name: float(value or 0) for name, value in values.items()}
    ordered = sorted(backbones, key=lambda backbone: (backbone.modified, backbone.name))
    return "checkpoint", {backbone.name: float(n) for n, backbone in enumerate(ordered, 1)}


def curve_files(snapshots: Sequence[Number]) -> dict[str, str]:
    """Return a CSV text per curve, by file name.

    It has the epoch and every metric of the task; for followed runs, also RankMe. Results in
    different columns of the overview are in different files.
    """
    curves = grouped(
        ((n.reasons, n.column, run_name(n.backbone.name), n.conditions), n)
        for n in snapshots
        if n.score and n.task != AVERAGE
    )
    files = {}
    for (reasons, (task, _), run, conditions), members in curves.items():
        first = members[0].runs[0]
        # conditions that prevent comparison with other results
        fields = [task, first.protocol, first.schedule, reasons.altered]
        data = reasons.data.replace("subset", "excerpt")  # file names of earlier versions stay
        fields += [data, f"other {reasons.version}" if reasons.version else "", conditions]
        name_parts = [re.sub(r"[ /]+", "-", field) for field in fields if field]
        unit, positions = curve_positions(n.backbone for n in members)
        values = {(positions[n.backbone.name], n.metric): n.score.mean for n in members if n.score}
        # head entropy is undefined if no image is classified correctly
        metrics = list(dict.fromkeys(metric for _, metric in values))
        rows = [
            [f"{x:.10g}", *(f"{values[x, m]:.4f}" if (x, m) in values else "" for m in metrics)]
            for x in sorted({position for position, _ in values})
        ]
        files[".".join([run, *name_parts, "csv"])] = csv_text([unit, *metrics], rows)
    return files
