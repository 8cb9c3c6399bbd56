"""Explain one record in sections, with the command to repeat it."""

import json
import shlex
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.results.numbers import numbers_of
from benchmarks.results.published import UNTRAINED, all_tables
from benchmarks.results.records import (
    CURVE_SEPARATOR,
    RUN_ALL,
    SMALL_DATA,
    TRANSFER,
    Run,
    grouped,
    value_words,
)
from benchmarks.results.verdicts import pairs_of, why_apart
from pretrain.running.command_line import with_present_option
from transfer.cells.request import Settings, command_line_args, from_json
from transfer.encoders.architectures import network_words
from transfer.encoders.options import Checkpoint
from transfer.record import (
    COPIED,
    RECORDS,
    SNAPSHOTS,
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
REMOVED_FLAGS = {"--trust-topology"}
REMOVED_VALUES = {"--rates-at-once"}
"""Flags that older records hold and commands no longer know."""
Entry = tuple[str, str]
"""Label and text."""
Explanation = Mapping[str, Sequence[Entry]]
"""Lines by section title, in the order of display."""


def as_text(explanation: Explanation) -> str:
    """Return the sections as aligned and wrapped text."""
    sections = []
    for title, lines in explanation.items():
        labels = [label for label, _ in lines if len(label) <= LABEL_WIDTH]
        width = max(map(len, labels), default=0)
        sections.append("\n".join([title, *(_on_lines(*line, width) for line in lines)]))
    return "\n\n".join(sections)


def _on_lines(label: str, text: str, width: int) -> str:
    """Return label and wrapped text; a command stays on one line."""
    start = f"  {label:<{width}}  "
    if label == "command":
        return start + text
    return textwrap.fill(
        text or "-",
        TEXT_WIDTH,
        initial_indent=start,
        subsequent_indent=" " * (width + 4),
        break_long_words=False,
        break_on_hyphens=False,
    )


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
    """Return all that is known about a number."""
    record, path = run.record, run.path
    copied, maps = (
        {name: run.details[name]} if name in run.details else {}
        for name in (COPIED, "largest_difference_of_maps")
    )
    sections = {
        "Number": list(_numbers(record)),
        "Published": list(_published(run)),
        "Comparable": [("with", run.comparison.description)],
        "Protocol": list(_protocol(record)),
        "Checkpoint": checkpoint_lines(record),
        "Data": [*_fields(record.data), *_fields(copied)],
        "Computed": [
            ("record", str(path)),
            ("features_in", features_in(record)),
            *_fields({name: getattr(record, name) for name in COMPUTED} | maps),
        ],
        "Again": list(again_lines(record, path)),
    }
    return {title: lines for title, lines in sections.items() if lines}


def _numbers(record: Record) -> Iterator[Entry]:
    first = record.primary_metric or next(iter(record.metrics), "")
    names = sorted(record.metrics, key=lambda name: name != first)
    for name in names:
        yield f"{record.task} {name}", f"{record.metrics[name]:.2f}"


def _published(run: Run) -> Iterator[Entry]:
    """Yield published numbers with verdicts, or reasons for their absence."""
    if run.small:
        yield "none", SMALL_DATA[run.small]
        return
    if run.protocol_hash != run.paper_hash:
        yield "none", "the protocol is not the paper's, see its deviations"
        return
    if run.reasons.texts:
        yield "none", ", ".join(run.reasons.texts)
        return
    pairs = [pair for pair in pairs_of(numbers_of([run])) if pair.printed.task == run.task]
    for pair in pairs:
        printed, diff = pair.printed, pair.difference
        ours = printed.value + diff.points
        text = f"{printed.value:g}, ours {ours:.2f} ({diff.points:+.2f}): "
        if pair.no_verdict:
            text += f"no verdict: {pair.no_verdict}"
        else:
            text += f"{pair.verdict}, 95 % interval {diff.interval_text()}"
        yield f"{printed.where}: {printed.row.label}, {printed.column.label}", text
    if not pairs:
        reasons = {
            f"{paper.name}, {table.number}": why_apart(table, run)
            for paper, table in all_tables()
            if table.kind != "settings"
            if any(run.task == (r.task or c.task) for r in table.rows for c in table.columns)
        }
        yield from (reasons or {"none": "no paper prints a number of this task"}).items()


def _protocol(record: Record) -> Iterator[Entry]:
    protocol = record.protocol
    yield "name", f"{protocol['name']}, schedule {record.schedule}, hash {protocol['hash']}"
    same = protocol["hash"] == protocol["paper_hash"]
    yield "as in the paper", "yes" if same else f"no, the paper's hash is {protocol['paper_hash']}"
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


def again_lines(record: Record, path: Path) -> Iterator[Entry]:
    """Yield the command to repeat the evaluation, placeholders, and cache status."""
    key = record.request.get("task")
    if key not in TASKS or not file_of(record) or record.request.get("variant"):
        yield (
            "not possible",
            "the record has no command, since Python code or an earlier version made it",
        )
        return
    results, of_snapshot = _results_folder(path, record.task)
    curve, _, snapshot = str(record.backbone["name"]).rpartition(CURVE_SEPARATOR)
    source = (record.request.get("checkpoint", {}).get("origin") or {}).get("file", "")
    if of_snapshot:
        args = [*RUN_ALL, "--follow" if source else "--snapshots", "DIR", "--name", curve]
        args += ["--tasks", key]
    else:
        args = [*TRANSFER, key, *_checkpoint_words(record)]
        args += ["--seed", str(record.seed)]
    args += ["--data", "DATA", "--schedule", record.schedule]
    args += ["--results", str(results)] if results not in (None, DEFAULT_RESULTS) else []
    yield "command", shlex.join([*args, *_option_words(record)])
    hash_words = f"with the sha256 {record.backbone.get('file_sha256')}"
    if of_snapshot:
        file, name = "DIR", source or f"{snapshot}.pt"
        folder = "the folder of the run" if source else "a folder of the run's snapshots"
        yield file, f"{folder}; this record: {name} {hash_words}"
    elif (record.backbone.get("made_by") or {}).get("method") == UNTRAINED:
        file = file_of(record)
        yield file, _network_of(record)
    else:
        file = file_of(record)
        yield file, f"the checkpoint {hash_words}; the record may lack its folder"
    generated = any(entry["small"] == "generated" for entry in record.data.values())
    written = "; to write generated data: python -m transfer generate-data" if generated else ""
    yield "DATA", f"the folder of all datasets{written}"
    if protocol_hash(record.task, TASKS[key]) != record.protocol["paper_hash"]:
        yield "cached", "no: the protocol has changed since"
    elif results is None:
        yield "cached", f"no: the record is not in a results folder ({path})"
    else:
        yield "cached", f"yes, if {file} and DATA are the same as in the record"


def file_of(record: Record) -> str:
    """Return the checkpoint path as given; empty without a command."""
    if args := record.request.get("backbone"):  # an older record, which stores arguments
        return str(args[1])
    return str(record.request.get("checkpoint", {}).get("ckpt", ""))


def _checkpoint_words(record: Record) -> list[str]:
    """Return the arguments for the checkpoint and its declared recipe."""
    declared = record.declared or None  # it may have changed since the evaluation
    if args := record.request.get("backbone"):
        args = [with_present_option(arg) for arg in args]
        return [*args, *(["--trained-with", declared] if declared else [])]
    checkpoint = from_json(Checkpoint, record.request["checkpoint"])
    return command_line_args(replace(checkpoint, declared=declared))


def _option_words(record: Record) -> list[str]:
    """Return the arguments for the options of the evaluation."""
    if "settings" not in record.request:
        old_args = record.request["options"]
        return [
            with_present_option(arg)
            for previous, arg in zip(["", *old_args], old_args, strict=False)
            if arg not in {*REMOVED_FLAGS, *REMOVED_VALUES} and previous not in REMOVED_VALUES
        ]
    settings = from_json(Settings, record.request["settings"])
    return command_line_args(replace(settings, schedule="paper"))


def _results_folder(path: Path, task: str) -> tuple[Path | None, bool]:
    """Return a record's results folder, and whether it is a snapshot."""
    # a task such as transfer_linear/cifar10 is a subfolder of the backbone's folder
    if len(path.parents) < (depth := 2 + task.count("/")):
        return None, False
    records = path.parents[depth - 1]
    of_snapshot = records.name == SNAPSHOTS
    records = records.parent if of_snapshot else records
    return (records.parent, of_snapshot) if records.name == RECORDS else (None, False)


def _network_of(record: Record) -> str:
    """Return which checkpoints have the network of a random initialization."""
    backbone, input_fields = record.backbone, record.request["input"]
    labels = {"size_px": "size in px", "mean": "mean", "std": "deviation"}
    texts = [
        f"{text} {value_words(input_fields[name])}"
        for name, text in labels.items()
        if name in input_fields
    ]
    network = network_words(backbone["arch"], backbone["stem"])
    return (
        f"any checkpoint of a {network} with input {' and '.join(texts)}: the command uses its "
        "network and input, not its weights"
    )
