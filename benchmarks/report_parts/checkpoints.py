"""Checkpoints that were evaluated, failed cells, tasks without a result, and hours of tasks."""

from collections.abc import Sequence
from typing import Any

from benchmarks.pages.explanation import checkpoint_lines
from benchmarks.pages.records import Model, grouped, machine
from benchmarks.pages.table_rows import backbones_of, description, row_label
from benchmarks.report_parts.contents import Contents
from benchmarks.report_parts.pretraining import Log, loss_of
from benchmarks.report_parts.requested import how_to_get, stored_requests
from transfer.datasets.catalog import DATASETS
from transfer.tasks import TASKS, reading_of


def checkpoints(contents: Contents, logs: Sequence[Log] = ()) -> list[dict[str, Any]]:
    """Return every checkpoint with a result or a failure, in order of their names.

    Of each there are its name, network and pre-training in a line, lines on its identity and what
    was proven, the loss of its pre-training if its log is here, and the numbers of its cells.
    logs: of pre-training runs, which may have made some of them.
    """
    done, failed = contents.results.done, contents.results.failed
    models = backbones_of(result.model for result in done)
    known = {model.name for model in models}
    models += [Model(name=name) for name in sorted({f.backbone for f in failed} - known)]
    models.sort(key=lambda model: (model.untrained or model.method == "random", model))
    found = []
    for model in models:
        records = [result.record for result in done if result.model == model]
        checkpoint = {
            "name": row_label(model, models),
            "what": description(model),
            "lines": [*checkpoint_lines(records)] if records else [],
            "loss": loss_of(model, logs),
            "num_results": len(records),
            "num_failed": sum(one.backbone == model.name for one in failed),
        }
        found.append(checkpoint)
    return found


def missing_tasks(contents: Contents) -> list[tuple[list[str], list[str], list[str]]]:
    """Return the default tasks that no run was asked for, grouped by their data sets.

    Beside the tasks stand the titles of their data sets, and how to get these.
    """
    ran = {result.task for result in contents.results.done}
    ran |= {failure.task for failure in contents.results.failed}
    ran |= {one.cell.task for one in stored_requests(contents.folder)}
    groups: dict[tuple[str, ...], dict[str, None]] = {}
    for key, task in TASKS.items():
        name = reading_of(key)[0]
        if task.by_default and name not in ran:
            groups.setdefault(tuple(task.datasets()), {})[name] = None
    return [
        ([*tasks], [DATASETS[key].title for key in keys], how_to_get(keys))
        for keys, tasks in groups.items()
    ]


def task_hours(contents: Contents) -> list[dict[str, Any]]:
    """Return the hours of all results and of the longest by task and machine, most first."""
    done = contents.results.done
    groups = grouped(((result.task, machine(result.record)), result.record) for result in done)
    rows = [
        {
            "task": task,
            "machine": where,
            "num_results": len(records),
            "hours": sum(record.wall_s for record in records) / 3600,
            "longest": max(record.wall_s for record in records) / 3600,
            "peak_memory_gb": max(record.peak_memory_gb for record in records),
        }
        for (task, where), records in groups.items()
    ]
    return sorted(rows, key=lambda row: -row["hours"])
