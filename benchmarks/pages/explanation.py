"""Everything behind one record, as sections of labelled lines."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.pages.against import compared_numbers
from benchmarks.pages.published import papers
from benchmarks.pages.records import Result
from benchmarks.pages.verdict import tolerance, verdict
from transfer.record import Record, features_in, protocol_hash, stored_fields
from transfer.tasks import TASKS, reading_of

Line = tuple[str, str]
"""Label and text."""


@dataclass(frozen=True)
class Explanation:
    """One number and where it comes from."""

    sections: Mapping[str, Sequence[Line]]
    """Lines by the title of their section, in the order in which they are shown."""

    def as_text(self) -> str:
        """Return the sections, with labels in one column."""
        parts = []
        for title, lines in self.sections.items():
            width = max((len(label) for label, _ in lines), default=0)
            texts = [f"  {label:<{width}}  {text}".rstrip() for label, text in lines]
            parts.append("\n".join([title, *texts]))
        return "\n\n".join(parts)

    def as_dict(self) -> dict[str, dict[str, str]]:
        """Return the text of each line by section and label."""
        return {title: dict(lines) for title, lines in self.sections.items()}


def explain(path: Path, record: Record, result: Result) -> Explanation:
    """Return all that is known about a number; the result is the record as tables read it."""
    sections = {
        "Number": list(_numbers(record)),
        "Published": list(_published(result)),
        "Protocol": list(_protocol(record)),
        "Checkpoint": list(_checkpoint(record)),
        "Data": list(_data(record)),
        "Computed": list(_computed(path, record)),
        "Again": list(_again(record, result)),
    }
    return Explanation({title: lines for title, lines in sections.items() if lines})


def _numbers(record: Record) -> Iterator[Line]:
    first = record.primary_metric or next(iter(record.metrics), "")
    names = sorted(record.metrics, key=lambda name: name != first)
    for name in names:
        yield f"{record.task} {name}", f"{record.metrics[name]:.2f}"


def _published(result: Result) -> Iterator[Line]:
    """Yield the published number beside each of ours, with the verdict, or why there is none."""
    reasons: dict[str, str] = {}
    found = False
    for paper in papers():
        for table in paper.tables:
            rows_and_columns = product(table.rows, table.columns)
            measured = any((row.task or c.task) == result.task for row, c in rows_and_columns)
            if table.kind == "settings" or not measured:
                continue
            pairs, apart = compared_numbers(table, [result])
            label = f"{paper.name}, {table.number}"
            for pair in pairs:
                if pair.task != result.task:
                    continue
                found = True
                difference = pair.ours.mean - pair.paper
                text = f"{pair.paper:g}, ours {pair.ours.mean:.2f} ({difference:+.2f})"
                if pair.judged:
                    limits = tolerance(pair.task)
                    text += f": {verdict(difference, pair.task)}, "
                    text += f"pass up to {limits.passes:g}, warn up to {limits.warns:g}"
                else:
                    text += ": not judged, cited from elsewhere"
                yield f"{label}: {pair.row.label}, {pair.column.label}", text
            if apart:
                reasons[label] = next(iter(apart.values()))
    if not found and result.small:
        yield "none", f"the data are the {result.small} version"
    elif not found and result.protocol_hash != result.paper_hash:
        yield "none", "the protocol is not the paper's, see its departures"
    elif not found:
        for label, reason in reasons.items():
            yield label, reason
        if not reasons:
            yield "none", "no paper prints a number of this task"


def _protocol(record: Record) -> Iterator[Line]:
    protocol = record.protocol
    yield "name", f"{protocol['name']}, schedule {record.schedule}, hash {protocol['hash']}"
    same = protocol["hash"] == protocol["paper_hash"]
    yield "as in the paper", "yes" if same else f"no, whose hash is {protocol['paper_hash']}"
    for sentence in record.departures:
        yield "departure", sentence
    key = task_key(record)
    paper = {} if key is None else stored_fields(TASKS[key])
    for name, value in protocol["fields"].items():
        text = _words(value)
        if name in paper and _words(paper[name]) != text:
            text += f"   (paper: {_words(paper[name])})"
        yield name, text


def task_key(record: Record) -> str | None:
    """Return the key of the record's task and reading; None if this version has no such task."""
    return _key_of(record.task, record.protocol["name"])


def _key_of(task: str, protocol: str) -> str | None:
    keys = [key for key in TASKS if reading_of(key)[0] == task]
    return next((key for key in keys if TASKS[key].protocol == protocol), None)


def command_again(result: Result) -> str:
    """Return the command that makes a number again, with FILE and DATA to fill in.

    Empty if this version has no such task.
    """
    key = _key_of(result.task, result.protocol)
    if key is None:
        return ""
    words = ["python", "benchmarks/run_all.py", "--ckpt", "FILE", "--name", result.model.name]
    words += ["--data", "DATA", "--tasks", key, "--schedule", result.schedule]
    words += ["--seeds", str(result.seed)]
    if result.features_in != "float32":
        words += ["--features-in", result.features_in]
    return shlex.join(words)


def _checkpoint(record: Record) -> Iterator[Line]:
    backbone = record.backbone
    yield "name", backbone["name"]
    yield "network", f"{backbone['arch']}, {backbone['stem']} stem"
    yield "tensors", f"sha256 {backbone['sha256']}"
    if backbone.get("file_sha256"):
        yield "file", f"sha256 {backbone['file_sha256']}"
    yield "recognized as", backbone.get("source", "")
    made_by = backbone.get("made_by") or {}
    for name in ("recipe", "epochs", "data", "seed", "precision", "commit"):
        if made_by.get(name) not in (None, ""):
            yield f"trained: {name}", _words(made_by[name])
    if not made_by:
        yield "trained", "the file does not say how"


def _data(record: Record) -> Iterator[Line]:
    for key, told in record.data.items():
        counts = ", ".join(f"{split} {number:,}" for split, number in told["counts"].items())
        small = f"{told['small']} version, " if told["small"] else ""
        tolerated = f", {told['tolerated']} images tolerated" if told["tolerated"] else ""
        yield key, f"{small}{counts}{tolerated}; fingerprint {told['fingerprint']}"


def _computed(path: Path, record: Record) -> Iterator[Line]:
    yield "record", str(path)
    yield "finished", record.finished
    yield "seed", str(record.seed)
    yield "engine", f"{record.engine}, features in {features_in(record)}"
    yield "commit", record.commit or "unknown"
    yield "machine", ", ".join(f"{name} {value}" for name, value in record.hardware.items())
    yield "versions", ", ".join(f"{name} {value}" for name, value in record.versions.items())
    yield "time", f"{record.wall_s:,.0f} s, {record.peak_memory_gb:.1f} GB of memory"


def _again(record: Record, result: Result) -> Iterator[Line]:
    """Yield the command that makes the number again, and when it would find it cached."""
    key = task_key(record)
    if key is None:
        yield "not possible", f"this version has no task {record.task} under this protocol"
        return
    backbone = record.backbone
    yield "command", command_again(result)
    yield "FILE", f"the file with sha256 {backbone.get('file_sha256') or backbone['sha256']}"
    if protocol_hash(record.task, TASKS[key]) == record.protocol["paper_hash"]:
        pairs = record.data.items()
        fingerprints = ", ".join(f"{one} {told['fingerprint']}" for one, told in pairs)
        yield "cached", f"yes, as long as DATA has the fingerprint of the record: {fingerprints}"
    else:
        yield "cached", "no: the numbers of the protocol have changed since"


def _words(value: Any) -> str:
    """Return a value in words; numbers without superfluous digits."""
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_words(inner)}" for name, inner in value.items())
    if isinstance(value, list | tuple):
        return " ".join(map(_words, value))
    return str(value)
