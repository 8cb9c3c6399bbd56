"""The protocol that a command of this version would plan for a record, and the command's options.

A record holds no command line. Its options follow from the numbers of its protocol: each is what
turns the protocol at the record's schedule into the recorded one.
"""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

from transfer.backbone import Backbone, InputFormat
from transfer.finetuning.options import EngineChoice, TrainingOptions
from transfer.record import Record, protocol_hash, stored_fields
from transfer.running.option_ranges import RANGES
from transfer.running.processes import assume_gpus
from transfer.tasks import TASKS, reading_of
from transfer.tasks.task import Task

NOWHERE = Path(os.devnull) / "none"
"""Folder without data sets."""
UNUSED_INPUT = InputFormat(mean=(-1.0, -2.0, -3.0), std=(-4.0, -5.0, -6.0), size_px=-7)
"""Numbers that no protocol holds: where they appear, a protocol takes them from the backbone."""


@dataclass(frozen=True)
class Planned:
    """Task as the record's command would plan it."""

    key: str
    task: Task
    options: TrainingOptions
    input: Mapping[str, Any]
    """Parts of the checkpoint's input format that the record holds."""
    differing: tuple[str, ...]
    """Names of the protocol's numbers that no option gives as recorded."""
    classifier: str
    """Hash of the protocol that trains the task's classifier; empty if it uses none."""


def key_of(task: str, protocol: str) -> str | None:
    """Return the key of a task and protocol; None if this version has no such task."""
    keys = [key for key in TASKS if reading_of(key)[0] == task]
    exact = (key for key in keys if TASKS[key].protocol == protocol)
    drawn = (key for key in keys if TASKS[key].with_data(NOWHERE).protocol == protocol)
    return next(exact, None) or next(drawn, None)


def flat_fields(fields: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the numbers of a protocol by name; those of a nested part as "recipe.iterations"."""
    flat: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, Mapping) and value:
            flat |= flat_fields(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


def fields_of(task: Task) -> dict[str, Any]:
    """Return the numbers of a protocol as its record would hold them, by flat name."""
    return flat_fields(json.loads(json.dumps(stored_fields(task))))


def plan_again(record: Record, key: str, *, has_options: bool = True) -> Planned:
    """Return what the record's command would plan.

    has_options: the command takes training options. ValueError, KeyError or TypeError if the
    record's numbers are not those of any protocol of this version.
    """
    recorded = flat_fields(record.protocol["fields"])
    whole = TASKS[key].at_schedule(record.schedule)
    form = dict(_recorded_input(whole, record, recorded))
    backbone = _stand_in(record, InputFormat(**form))
    task = whole.for_backbone(backbone)
    num_processes = int(record.details.get("num_processes", 1))
    # the GPUs of this machine must not matter, and to count them may take an import of torch
    with assume_gpus(num_processes):
        options = TrainingOptions()
        if has_options:
            options = _options(task, record, recorded, num_processes)
        task = task.with_options(options)
        classifier = ""
        if task.needs:
            needed = TASKS[task.needs].at_schedule(record.schedule).for_backbone(backbone)
            task_id = reading_of(task.needs)[0]
            classifier = protocol_hash(task_id, needed.with_options(options))
    if task.protocol != record.protocol["name"]:
        task = task.with_data(NOWHERE)
    return Planned(key, task, options, form, _differing(task, recorded), classifier)


def option_words(options: TrainingOptions) -> list[str]:
    """Return the words of a command line that give these options; those at their default do not."""
    words: list[str] = []
    defaults = vars(TrainingOptions())
    for name, value in vars(options).items():
        if value != defaults[name]:
            values = value if isinstance(value, tuple) else (value,)
            words += [f"--{name.replace('_', '-')}", *map(str, values)]
    return words


def _recorded_input(
    task: Task, record: Record, recorded: Mapping[str, Any]
) -> Iterator[tuple[str, Any]]:
    """Yield the parts of the input format that the protocol took from the backbone, by name."""
    probe = fields_of(task.for_backbone(_stand_in(record, UNUSED_INPUT)))
    unused = json.loads(json.dumps(vars(UNUSED_INPUT)))
    for name, value in probe.items():
        for part in ("mean", "std", "size_px"):
            if value == unused[part] and name in recorded:
                given = recorded[name]
                yield part, tuple(given) if isinstance(given, list) else given


def _stand_in(record: Record, form: InputFormat) -> Backbone:
    """Return a backbone without weights, whose input format shapes a protocol."""
    return Backbone(
        name=str(record.backbone.get("name", "")),
        arch=record.backbone.get("arch", ""),
        stem=record.backbone.get("stem", "imagenet"),
        state_dict={},
        input=form,
        made_by={},
        source="",
        file_sha256="",
        sha256="",
    )


def _differing(task: Task, recorded: Mapping[str, Any]) -> tuple[str, ...]:
    planned = fields_of(task)
    names = dict.fromkeys((*recorded, *planned))
    return tuple(name for name in names if planned.get(name) != recorded.get(name))


def _options(
    task: Task, record: Record, recorded: Mapping[str, Any], num_processes: int
) -> TrainingOptions:
    options = TrainingOptions()
    if "engine_choice" in fields_of(task):
        chosen = (choice for choice in get_args(EngineChoice) if choice == record.engine)
        options = replace(options, engine=next(chosen, "auto"))
    if task.distributed_training is None:
        return _options_of_few_labels(task, options, recorded)
    options = replace(options, gpus=num_processes)
    # in the order in which the options apply: a batch scales the rate and the length
    for name in ("batch_size", "iterations", "precision"):
        value = recorded.get(f"recipe.{name}")
        if value not in (None, fields_of(task.with_options(options))[f"recipe.{name}"]):
            options = replace(options, **{name: value})
    options = _with_image_size(task, options, recorded)
    planned = fields_of(task.with_options(options))
    rate, searched = recorded.get("recipe.learning_rate"), recorded.get("learning_rates")
    if searched:
        options = replace(options, learning_rates=tuple(searched))
    elif rate not in (None, planned["recipe.learning_rate"]):
        options = replace(options, learning_rates=(rate,))
    passes = recorded.get("recipe.accumulated")
    if passes not in (None, planned["recipe.accumulated"]):
        images = recorded["recipe.batch_size"] // (passes * num_processes)
        options = replace(options, images_per_gpu=images)
    return options


def _options_of_few_labels(
    task: Task, options: TrainingOptions, recorded: Mapping[str, Any]
) -> TrainingOptions:
    planned = fields_of(task)
    rates, precision = recorded.get("head_rates"), recorded.get("precision")
    if "head_rates" not in planned:
        return options
    if rates not in (None, planned["head_rates"]):
        options = replace(options, learning_rates=tuple(rates))
    if precision not in (None, planned["precision"]):
        options = replace(options, precision=precision)
    return options


def _with_image_size(
    task: Task, options: TrainingOptions, recorded: Mapping[str, Any]
) -> TrainingOptions:
    """Return the options with the image size that gives the most of the recorded numbers.

    The size is one of these numbers, under a name that only its recipe knows.
    """
    numbers = {value for value in recorded.values() if type(value) is int}
    sizes = {number for number in numbers if number in RANGES["image_px"]}
    candidates = [replace(options, image_px=px) for px in (0, *sorted(sizes))]
    return min(candidates, key=lambda own: len(_differing(task.with_options(own), recorded)))
