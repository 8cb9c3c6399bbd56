"""Hardware of the results, and the hours of each task against the plan's."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from benchmarks.pages.again import key_of
from benchmarks.pages.checkpoint_lines import machine
from benchmarks.pages.records import Result
from benchmarks.report_parts.contents import Contents
from transfer.backbone import Backbone, InputFormat
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
    groups: dict[tuple[str, str], list[tuple[Result, Record]]] = {}
    for result in contents.results.done:
        record = contents.whole(result)
        if record is not None:
            groups.setdefault((result.task, machine(record)), []).append((result, record))
    rows = [_hours(*key, members) for key, members in groups.items()]
    return sorted(rows, key=lambda row: -row.hours)


def _hours(task: str, where: str, members: Sequence[tuple[Result, Record]]) -> TaskHours:
    times = [record.wall_s / 3600 for _, record in members]
    planned = [_planned_hours(result, record) for result, record in members]
    known = [hours for hours in planned if hours is not None]
    return TaskHours(
        task=task,
        machine=where,
        num_results=len(members),
        hours=sum(times),
        longest=max(times),
        peak_memory_gb=max(record.peak_memory_gb for _, record in members),
        planned=sum(known) if len(known) == len(planned) else None,
        planned_length=_planned_length(record for _, record in members),
    )


def _planned_length(records: Iterable[Record]) -> str:
    """Return the paper's length of a training that was given another one."""
    lengths = dict.fromkeys(
        f"{int(number):,} {unit}"
        for record in records
        for departure in record.departures
        for unit, number in CHANGED_LENGTH.findall(str(departure))
    )
    return ", ".join(lengths)


def _planned_hours(result: Result, record: Record) -> float | None:
    """Return the plan's hours of a result, on the published counts of images."""
    known = "name" in record.protocol
    key = key_of(record.task, record.protocol["name"]) if known else None
    if key is None:
        return None
    try:
        backbone = Backbone(
            name=result.model.name,
            arch=result.model.arch,
            stem=record.backbone["stem"],
            state_dict={},
            input=InputFormat(size_px=int(record.protocol["fields"].get("crop_px", 224))),
            made_by={},
            source="",
            file_sha256="",
            sha256=result.model.sha256,
        )
        return TASKS[key].at_schedule(record.schedule).gpu_hours(backbone)
    except (KeyError, ValueError, TypeError, AttributeError):
        return None
