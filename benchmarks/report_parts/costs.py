"""Hardware of the results, and the hours of each task against the plan's."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks.pages.checkpoint_lines import machine
from benchmarks.pages.records import grouped
from benchmarks.report_parts.contents import Contents
from transfer.backbone import Backbone, BackboneError, InputFormat
from transfer.record import Record
from transfer.tasks import TASKS

CHANGED_LENGTH = re.compile(r"\b(iterations|epochs|steps) \d+ instead of (\d+)\b")
"""A departure's words for a training of another length."""


@dataclass(frozen=True, kw_only=True)
class TaskHours:
    """Time that the results of one task on one kind of machine took."""

    task: str
    machine: str
    num_results: int
    hours: float
    longest: float
    peak_memory_gb: float
    planned: float | None
    """Hours that a plan gives for the same results on one GPU; None if a task is not known."""
    planned_length: str
    """Length that the plan is for, such as "33,069 iterations", where results had another one."""


def task_hours(contents: Contents) -> list[TaskHours]:
    """Return the hours by task and machine, the longest first."""
    done = contents.results.done
    groups = grouped(((result.task, machine(result.record)), result.record) for result in done)
    rows = [_hours(*key, records) for key, records in groups.items()]
    return sorted(rows, key=lambda row: -row.hours)


def _hours(task: str, where: str, records: Sequence[Record]) -> TaskHours:
    times = [record.wall_s / 3600 for record in records]
    planned = [hours for record in records if (hours := _planned_hours(record)) is not None]
    lengths = dict.fromkeys(
        f"{int(number):,} {unit}"
        for record in records
        for departure in record.departures
        for unit, number in CHANGED_LENGTH.findall(departure)
    )
    return TaskHours(
        task=task,
        machine=where,
        num_results=len(records),
        hours=sum(times),
        longest=max(times),
        peak_memory_gb=max(record.peak_memory_gb for record in records),
        planned=sum(planned) if len(planned) == len(records) else None,
        planned_length=", ".join(lengths),
    )


def _planned_hours(record: Record) -> float | None:
    """Return the plan's hours of a record, on the published counts of images."""
    task = TASKS.get(record.request.get("task", ""))
    if task is None:
        return None
    names = ("name", "arch", "stem", "sha256", "file_sha256", "source", "made_by")
    form = InputFormat(size_px=int(record.protocol["fields"].get("crop_px", 224)))
    known = {name: record.backbone.get(name, "") for name in names}
    backbone = Backbone(**known, state_dict={}, input=form)
    try:
        return task.at_schedule(record.schedule).gpu_hours(backbone)
    except BackboneError:  # an encoder, whose cost its record does not hold
        return None
