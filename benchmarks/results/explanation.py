"""Explain one record in sections, with the command to repeat it."""

import json
import shlex
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.results.numbers import numbers_of
from benchmarks.results.published import all_tables
from benchmarks.results.records import CURVE_SEPARATOR, Run
from benchmarks.results.verdicts import pairs_of, reason_without_number
from benchmarks.words import RUN_ALL, TRANSFER, grouped, value_words
from pretrain.running.command_line import with_present_option
from transfer.cells.request import Settings, command_line_args, from_json
from transfer.encoders.architectures import network_words
from transfer.encoders.options import Checkpoint
from transfer.record import (
    COPIED,
    RECORDS,
    SNAPSHOTS,
    UNTRAINED,
    Record,
    features_in,
    protocol_hash,
    stored_fields,
)
from transfer.tasks import TASKS

TEXT_WIDTH = 100
LABEL_WIDTH = 32
"""Longest line of the text and widest column of labels, in characters."""
DEFAULT_RESULTS = Path("results")
COMPUTED = (
    *("finished", "seed", "engine", "commit", "hardware", "versions", "speed"),
    *("wall_s", "peak_memory_gb"),
)
"""Fields of a record on its computation."""
MAPS = "largest_difference_of_maps"
"""Detail of a detector: largest difference of its feature maps from torchvision's."""
REMOVED_FLAGS = {"--trust-topology"}
REMOVED_VALUES = {"--rates-at-once"}
"""Flags that older records hold and commands no longer know."""
Entry = tuple[str, str]
"""Label and text."""
Explanation = Mapping[str, Sequence[Entry]]
"""Lines by section title, in the order of display."""


def as_text(explanation: Explanation) -> str:
    """Return the sections as aligned and wrapped text; a command stays on one line."""
    sections = []
    for title, entries in explanation.items():
        width = max((len(label) for label, _ in entries if len(label) <= LABEL_WIDTH), default=0)
        wrapper = textwrap.TextWrapper(
            TEXT_WIDTH,
            subsequent_indent=" " * (width + 4),
            break_long_words=False,
            break_on_hyphens=False,
        )
        lines = [title]
        for label, text in entries:
            wrapper.initial_indent = f"  {label:<{width}}  "
            is_command = label == "command"
            lines.append(wrapper.initial_indent + text if is_command else wrapper.fill(text or "-"))
        sections.append("\n".join(lines))
    return "\n\n".join(sections)


def as_dict(explanation: Explanation) -> dict[str, dict[str, str | list[str]]]:
    """Return the whole text of each line by section and label.

    A label that occurs several times in its section, such as "deviation", holds the list of its
    texts, in their order.
    """
    return {
        title: {
            key: texts[0] if len(texts) == 1 else texts for key, texts in grouped(lines).items()
        }
        for title, lines in explanation.items()
    }


def explain(run: Run) -> Explanation:
    """Return the sections on a record, from its number to the command that repeats it."""
    record, details = run.record, run.details
    data = record.data | {name: details[name] for name in (COPIED,) if name in details}
    computed = {"record": str(run.path), "features_in": features_in(record)}
    computed |= {name: getattr(record, name) for name in COMPUTED}
    computed |= {name: details[name] for name in (MAPS,) if name in details}
    sections = {
        "Number": list(_numbers(record)),
        "Published": list(_published(run)),
        "Comparable": [("with", run.comparison.description)],
        "Protocol": list(_protocol(record)),
        "Checkpoint": checkpoint_lines(record),
        "Data": _fields(data),
        "Computed": _fields(computed),
        "Again": list(repeat_lines(record, run.path)),
    }
    return {title: lines for title, lines in sections.items() if lines}


def _numbers(record: Record) -> Iterator[Entry]:
    first = record.primary_metric or next(iter(record.metrics), "")
    names = sorted(record.metrics, key=lambda name: name != first)
    key = record.request.get("task", record.task)
    for name in names:
        yield f"{key} {name}", f"{record.metrics[name]:.2f}"


def _published(run: Run) -> Iterator[Entry]:
    """Yield published numbers with verdicts, or reasons for their absence."""
    if not run.reasons.comparable:
        yield "none", run.reasons.text
        return
    pairs = [pair for pair in pairs_of(numbers_of([run])) if pair.printed.task == run.task]
    for pair in pairs:
        printed, points = pair.printed, pair.difference.points
        text = f"{printed.value:g}, ours {printed.value + points:.2f} ({points:+.2f}): "
        if pair.no_verdict:
            text += f"no verdict: {pair.no_verdict}"
        else:
            text += f"{pair.verdict}, 95 % interval {pair.difference.interval_text()}"
        yield f"{printed.where}: {printed.row.label}, {printed.column.label}", text
    if not pairs:
        reasons = {
            f"{paper.name}, {table.number}": reason_without_number(table, run.backbone)
            for paper, table in all_tables()
            if table.kind != "settings"
            if any(run.task == (r.task or c.task) for r in table.rows for c in table.columns)
        }
        yield from (reasons or {"none": "no paper prints a number of this task"}).items()


def _protocol(record: Record) -> Iterator[Entry]:
    protocol = record.protocol
    yield "name", f"{protocol['name']}, schedule {record.schedule}, hash {protocol['hash']}"
    is_published = protocol["hash"] == protocol["paper_hash"]
    yield (
        "as in the paper",
        "yes" if is_published else f"no, the paper's hash is {protocol['paper_hash']}",
    )
    for sentence in record.departures:
        yield "deviation", sentence
    task = TASKS.get(record.request.get("task", ""))
    paper = {} if task is None else _flat(json.loads(json.dumps(stored_fields(task))))
    for name, value in _flat(protocol["fields"]).items():
        text = value_words(value)
        if name in paper and value_words(paper[name]) != text:
            text += f"   (paper: {value_words(paper[name])})"
        yield name, text


def _flat(fields: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the entries of nested fields by name, such as "recipe.iterations"."""
    flat: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, Mapping) and value:
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


def checkpoint_lines(record: Record) -> list[Entry]:
    """Return checkpoint identity and origin, without recipe settings."""
    made_by = dict(record.backbone.get("made_by") or {})
    if made_by.get("recipe"):  # which settings differ from the recipe's is in `changed`
        made_by.pop("settings", None)
    fields = _fields(record.backbone | {"made_by": made_by or "not recorded in the file"})
    lines = [(name, text) for name, text in fields if text]
    if record.declared:
        lines.append(("declared recipe", f"{record.declared} (not verified)"))
    return lines


def _fields(fields: Mapping[str, Any]) -> list[Entry]:
    """Return record fields with dotted names, such as "cifar10.counts.test"."""
    return [(name, value_words(value)) for name, value in _flat(fields).items()]


def repeat_lines(record: Record, path: Path) -> Iterator[Entry]:
    """Yield the command that repeats the evaluation.

    Also explain its placeholders, and say whether the result would come from the cache.
    """
    key = record.request.get("task")
    if key not in TASKS or not file_of(record) or record.request.get("variant"):
        yield (
            "not possible",
            "the record has no command, since Python code or an earlier version made it",
        )
        return
    records = next((parent for parent in path.parents if parent.name == RECORDS), None)
    is_snapshot = records is not None and path.is_relative_to(records / SNAPSHOTS)
    curve, _, snapshot = str(record.backbone["name"]).rpartition(CURVE_SEPARATOR)
    source = (record.request.get("checkpoint", {}).get("origin") or {}).get("file", "")
    checkpoint_args, option_args = _stored_args(record)
    if is_snapshot:
        args = [*RUN_ALL, "--follow" if source else "--snapshots", "DIR", "--name", curve]
        args += ["--tasks", key]
    else:
        args = [*TRANSFER, key, *checkpoint_args, "--seed", str(record.seed)]
    args += ["--data", "DATA", "--schedule", record.schedule]
    if records and records.parent != DEFAULT_RESULTS:
        args += ["--results", str(records.parent)]
    yield "command", shlex.join([*args, *option_args])
    hash_text = f"with the sha256 {record.backbone.get('file_sha256')}"
    if is_snapshot:
        file, name = "DIR", source or f"{snapshot}.pt"
        folder = "the folder of the run" if source else "a folder of the run's snapshots"
        yield file, f"{folder}; this record: {name} {hash_text}"
    elif (record.backbone.get("made_by") or {}).get("method") == UNTRAINED:
        file = file_of(record)
        network = network_words(record.backbone["arch"], record.backbone["stem"])
        reason = "the command uses its network and input, not its weights"
        yield file, f"any checkpoint of a {network}: {reason}"
    else:
        file = file_of(record)
        yield file, f"the checkpoint {hash_text}; the record may lack its folder"
    generated = any(entry["small"] == "generated" for entry in record.data.values())
    generate_hint = (
        "; to write generated data: python -m transfer generate-data" if generated else ""
    )
    yield "DATA", f"the folder of all datasets{generate_hint}"
    is_changed = protocol_hash(record.task, TASKS[key]) != record.protocol["paper_hash"]
    cached = f"yes, if {file} and DATA are the same as in the record"
    yield "cached", "no: the protocol has changed since" if is_changed else cached


def file_of(record: Record) -> str:
    """Return the checkpoint path as given; empty without a command."""
    if args := record.request.get("backbone"):  # an older record, which stores arguments
        return str(args[1])
    return str(record.request.get("checkpoint", {}).get("ckpt", ""))


def _stored_args(record: Record) -> tuple[list[str], list[str]]:
    """Return the arguments for the checkpoint with its declared recipe, and for the options."""
    declared = record.declared or None  # it may have changed since the evaluation
    if "settings" in record.request:
        checkpoint = from_json(Checkpoint, record.request["checkpoint"])
        settings = from_json(Settings, record.request["settings"])
        options = command_line_args(replace(settings, schedule="paper"))
        return command_line_args(replace(checkpoint, declared=declared)), options
    # an older record, which stores arguments
    args = [with_present_option(arg) for arg in record.request["backbone"]]
    args += ["--trained-with", declared] if declared else []
    options = record.request["options"]
    return args, [
        with_present_option(arg)
        for previous, arg in zip(["", *options], options, strict=False)
        if arg not in {*REMOVED_FLAGS, *REMOVED_VALUES} and previous not in REMOVED_VALUES
    ]
