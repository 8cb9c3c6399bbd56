"""Pages of ours: backbones and tasks in parts per schedule; methods beside each other; curves."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, groupby

from benchmarks.pages.blocks import Block, Column, sort_into_blocks
from benchmarks.pages.differences import LEVEL, Score, compare, holm
from benchmarks.pages.entries import table_entry
from benchmarks.pages.published import AVERAGE, published_count_words, transfer_tasks
from benchmarks.pages.records import Model, Results, grouped
from benchmarks.pages.table_rows import (
    RULE,
    Notes,
    backbone_lines,
    backbones_of,
    csv_text,
    escape,
    notes_line,
    our_table,
    plain,
    row_label,
    table,
)


def overview_page(results: Results, tables: Sequence[tuple[str, str]], command: str) -> str:
    """Return the page; tables: title and file name of the other pages."""
    blocks = sort_into_blocks(results.done, results.failed)
    notes = Notes()
    parts = [
        "# Overview",
        "Percent; one row per backbone, one column per task. Only rows of one table may be "
        f"compared: they share protocol, length and data. Made by `{command}`.",
    ]
    parts.append(RULE if blocks else "No results yet.")
    for block in blocks:
        parts += [f"## {block.heading}", *_block(block, notes)]
    parts += ["## Notes", "\n".join(notes.lines())] if notes.texts else []
    if models := backbones_of(model for block in blocks for model in block.models):
        parts += ["## Backbones", *backbone_lines(models)]
    if tables:
        listed = "\n".join(f"- [{title}]({file})" for title, file in tables)
        parts += ["## Beside the papers", listed, f"{published_count_words()}."]
    if results.warnings:
        listed = "\n".join(f"- warning: {plain(str(file))}" for file in results.warnings)
        parts += ["## Files that are not used", listed]
    return "\n\n".join(part for part in parts if part) + "\n"


def _block(block: Block, notes: Notes) -> list[str]:
    """Return a table per kind of task; one table of all would be wider than a screen."""
    kinds = grouped((_metric_and_heading(block, column)[1], column) for column in _columns(block))
    filled = {*block.done, *block.failed}
    filled |= {(m, (AVERAGE, name)) for m, (task, name) in filled if task in transfer_tasks()}
    parts = []
    for kind, columns in kinds.items():
        metrics = [_metric_and_heading(block, column)[0] for column in columns]
        rows = [
            (
                row_label(model, block.models),
                [table_entry(block, model, *one) for one in zip(columns, metrics, strict=True)],
            )
            for model in block.models
            if any((model, column) in filled for column in columns)
        ]
        headings = [(label, column[0]) for label, column in _with_labels(columns)]
        grid, everywhere = our_table(rows, headings, notes)
        parts += [f"### {kind}", grid, "\n".join(_notes_lines(block, columns, everywhere))]
    return parts


def _columns(block: Block) -> list[Column]:
    """Return the columns with a result or a failure; the twelve and their average come first."""
    from transfer.tasks import TASKS, reading_of

    names = dict.fromkeys(name for task, name in block.columns if task in transfer_tasks())
    ran = set(block.columns)
    transfer = [
        column
        for name in names
        for column in (*((task, name) for task in transfer_tasks()), (AVERAGE, name))
        if column in ran or column[0] == AVERAGE
    ]
    # of several readings of a task the first one counts
    order = {reading_of(key)[0]: i for i, key in reversed([*enumerate(TASKS)])}
    others = [column for column in block.columns if column[0] not in transfer_tasks()]
    return transfer + sorted(others, key=lambda column: (order.get(column[0], len(order)), column))


def _metric_and_heading(block: Block, column: Column) -> tuple[str, str]:
    """Return primary metric and heading of a column, which may be the average of the twelve."""
    return ("mean", "Linear transfer") if column[0] == AVERAGE else block.metric_and_heading(column)


def _with_labels(columns: Sequence[Column]) -> list[tuple[str, Column]]:
    """Return the columns with short labels, which name the protocol if there are several."""
    several = len({name for _, name in columns}) > 1
    short = re.compile("^transfer_linear/|_linear$|_knn$")
    return [(short.sub("", task) + f" {name}" * several, (task, name)) for task, name in columns]


def _notes_lines(block: Block, columns: Sequence[Column], everywhere: Sequence[str]) -> list[str]:
    """Return the metrics and protocols of a table, and the notes that hold for all its numbers."""
    metrics = grouped(
        (block.metric_and_heading(column)[0], label)
        for label, column in _with_labels(columns)
        if column[0] != AVERAGE
    )
    parts = [
        metric if len(metrics) == 1 else f"{metric} of {', '.join(labels)}"
        for metric, labels in sorted(metrics.items())
    ]
    protocols = block.protocols(columns)
    lines = [f"- Metric: {'; '.join(parts)}."]
    lines += [f"- All rows: {notes_line(protocols, everywhere)}."] if protocols else []
    return lines


def method_page(results: Results, command: str) -> str:
    """Return the page of backbones whose recipes, METHOD/SIZE, have one size.

    It is empty if no two methods have a result on the same task.
    """
    blocks = sort_into_blocks(results.done, results.failed)
    models = {model for block in blocks for model in block.models if "/" in model.recipe}
    parts = []
    ordered = sorted(models, key=_sort_key)
    for size, group in groupby(ordered, key=lambda model: _sort_key(model)[0]):
        parts += _methods(size, list(group), blocks)
    if not parts:
        return ""
    header = [
        "# Methods",
        "Percent; one row per method, all of one size of recipe. Only numbers of one column may be "
        f"compared. Made by `{command}`.",
    ]
    return "\n\n".join([*header, *parts]) + "\n"


def _sort_key(model: Model) -> tuple[str, bool, Model]:
    """Return the sort key of a backbone: recipe size, then random initializations first."""
    return model.recipe.partition("/")[2], model.method != "random", model


def _methods(size: str, models: Sequence[Model], blocks: Sequence[Block]) -> list[str]:
    columns = [
        (block, column, block.metric_and_heading(column)[0])
        for block in blocks
        for column in _shared_columns(block, models)
    ]
    if not columns:
        return []
    shown = [m for m in models if any((m, column) in block.done for block, column, _ in columns)]
    rows = [
        (
            row_label(model, shown),
            [table_entry(block, model, column, metric) for block, column, metric in columns],
        )
        for model in shown
    ]
    notes = Notes()
    headings = [(f"{column[0]} {metric}", column[0]) for _, column, metric in columns]
    grid, everywhere = our_table(rows, headings, notes)
    protocols = [
        f"- {column[0]}: protocol {block.protocols([column])}; {block.heading.lower()}."
        for block, column, _ in columns
    ]
    shared = [f"- All rows: {'; '.join(everywhere)}."] if everywhere else []
    named = zip(shown, rows, strict=True)
    scores = {model: [entry.score for entry in row] for model, (_, row) in named}
    return [
        f"## {size}",
        RULE,
        grid,
        "\n".join([*protocols, *shared]),
        "\n".join(_difference_lines(scores, headings)),
        "\n".join(notes.lines()),
        *backbone_lines([*dict.fromkeys(replace(model, other_conditions="") for model in shown)]),
    ]


def _difference_lines(
    scores: Mapping[Model, Sequence[Score | None]], headings: Sequence[tuple[str, str]]
) -> Iterator[str]:
    """Yield how many backbones differ, for those that have results in the same columns.

    headings: label and task of each column. A column without known errors is left out.
    """
    sets = grouped(
        (tuple(i for i, score in enumerate(row) if score), model) for model, row in scores.items()
    )
    for columns, models in sets.items():
        trained = [place for place, model in enumerate(models) if model.method != "random"]
        tests = []
        for i in columns:
            row = [score for score in (scores[model][i] for model in models) if score]
            points, _, p, _ = compare(row, headings[i][1])
            # NaN where errors are not known
            if all(p[pair] <= 1 for pair in combinations(range(len(models)), 2)):
                tests.append((headings[i][0], points, p))
        if len(trained) < 3 or not tests:
            continue
        where = ", ".join(label for label, _, _ in tests)
        pairs = [*combinations(trained, 2)]
        alone, corrected = _num_significant([[p[pair] for _, _, p in tests] for pair in pairs], any)
        yield (
            f"- {where}: {alone} of {len(pairs)} pairs of the {len(trained)} trained backbones "
            f"differ in at least one column (p < {LEVEL}, uncorrected; {corrected} after Holm's "
            f"correction over {len(pairs) * len(tests)} tests)."
        )
        random = [place for place, model in enumerate(models) if model.method == "random"]
        methods = [place for place in trained if models[place].method != "supervised"]
        for other in random:
            # p of 1 for what is not better
            chances = [
                [
                    float(p[place, other]) if points[place, other] > 0 else 1.0
                    for _, points, p in tests
                ]
                for place in methods
            ]
            alone, corrected = _num_significant(chances, all)
            worse = [
                f"{models[place].name} ({', '.join(missed)})"
                for place, row in zip(methods, chances, strict=True)
                if (missed := [test[0] for test, p in zip(tests, row, strict=True) if p >= LEVEL])
            ]
            yield (
                f"- {where}: {alone} of {len(methods)} backbones trained without labels are better "
                f"than {models[other].name} in every column (p < {LEVEL}, uncorrected; {corrected} "
                f"after Holm's correction over {len(methods) * len(tests)} tests); not better, "
                f"uncorrected: {', '.join(worse) or 'none'}."
            )


def _num_significant(
    chances: Sequence[Sequence[float]], condition: Callable[[Iterable[bool]], bool]
) -> tuple[int, int]:
    """Return in how many rows of p-values any, or all, are significant: alone, and after Holm."""
    corrected = iter(holm([p for row in chances for p in row]))
    return (
        sum(condition(p < LEVEL for p in row) for row in chances),
        sum(condition([next(corrected) for _ in row]) for row in chances),
    )


def _shared_columns(block: Block, models: Sequence[Model]) -> list[Column]:
    """Return the columns in which two methods have a result, without random initializations."""
    trained = [model for model in models if model.method != "random"]
    return [
        column
        for column in block.columns
        if len({model.method for model in trained if (model, column) in block.done}) > 1
    ]


CURVE_SEPARATOR = "@"
"""Separator of the curve's and the snapshot's name in the name of a backbone."""


def run_of(model: Model) -> str:
    """Return the pre-training run that a snapshot belongs to."""
    return model.name.rpartition(CURVE_SEPARATOR)[0]


def curve_of(model: Model) -> str:
    """Return the curve of a snapshot: its run, and its conditions if they differ."""
    return (
        f"{run_of(model)} ({model.other_conditions})" if model.other_conditions else run_of(model)
    )


def curve_pages(results: Results, command: str) -> dict[str, tuple[str, str]]:
    """Return title and text of the page of each task that was run on snapshots, by file name."""
    parts: dict[str, list[str]] = {}
    for block in sort_into_blocks(results.done, results.failed, group_key=run_of):
        for column in block.columns:
            parts.setdefault(column[0], []).extend(_section(block, column))
    head = f"Percent; a column per run, a row per epoch of pre-training. Made by `{command}`."
    pages = {}
    for task in sorted(parts):
        title = f"{task} during pre-training"
        text = "\n\n".join([f"# {title}", head, *parts[task]]) + "\n"
        pages[f"curves_{task.replace('/', '_')}.md"] = title, text
    return pages


def _section(block: Block, column: Column) -> list[str]:
    """Return the part for one protocol: heading, a table per metric, conditions and failures."""
    done = [(m, results[0]) for (m, key), results in block.done.items() if key == column]
    parts = [f"## {block.heading}, protocol {column[1]}"]
    for metric in dict.fromkeys(name for _, result in done for name in result.metrics):
        parts += [f"{metric}:", _table(block, column, metric)]
    if done:
        seeds = ", ".join(str(seed) for seed in sorted({result.seed for _, result in done}))
        departures = dict.fromkeys(words for _, result in done for words in result.departures)
        of_all = [words for words in departures if all(words in r.departures for _, r in done)]
        named = [f"protocol {block.protocols([column])}", f"seed {seeds}", *of_all]
        parts.append(f"- {'; '.join(named)}.")
        own = {curve_of(m): [w for w in r.departures if w not in of_all] for m, r in done}
        lines = [f"{curve}: {'; '.join(words)}." for curve, words in own.items() if words]
        parts += [f"- {plain(line)}" for line in lines]
    for (model, key), failed in block.failed.items():
        if key == column:
            reasons = [f"{model.name} failed: {failure.reason}" for failure in failed]
            parts += [f"- {escape(plain(reason))}" for reason in reasons]
    return parts


def _table(block: Block, column: Column, metric: str) -> str:
    scores = {
        (curve_of(model), float(model.epochs or 0)): score.text(2)
        for model in block.models
        if (score := table_entry(block, model, column, metric).score) is not None
    }
    curves = sorted({curve for curve, _ in scores})
    epochs = sorted({epoch for _, epoch in scores})
    rows = [[f"{epoch:g}", *(scores.get((c, epoch), "") for c in curves)] for epoch in epochs]
    return table(["epoch", *map(plain, curves)], rows)


def curve_files(results: Results) -> dict[str, str]:
    """Return a CSV text per curve, by file name, with the epoch and every metric of the task.

    Results that do not share a column of the page do not share a file either.
    """
    files = {}
    for block in sort_into_blocks(results.done, group_key=run_of):
        for column in block.columns:
            curves = grouped(
                ((run_of(model), model.other_conditions), (model, done[0]))
                for (model, other), done in block.done.items()
                if other == column
            )
            for (run, apart), curve in curves.items():
                # the conditions under which a block's numbers may not be compared with others
                words = [column[0], block.protocols([column]), curve[0][1].schedule]
                words += block.reasons._replace(schedule="paper").words()
                words += [f"other {block.version}"] if block.version else []
                words += [apart] if apart else []
                parts = [re.sub(r"[ /]+", "-", word) for word in words]
                name = ".".join([run, *parts, "csv"])
                # heads have no entropy where no image is right
                metrics = list(dict.fromkeys(name for _, r in curve for name in r.metrics))
                curve.sort(key=lambda point: float(point[0].epochs or 0))
                rows = [
                    [
                        f"{float(model.epochs or 0):g}",
                        *(f"{r.metrics[m]:.4f}" if m in r.metrics else "" for m in metrics),
                    ]
                    for model, r in curve
                ]
                files[name] = csv_text(["epoch", *metrics], rows)
    return files
