"""Everything behind one record, as sections of labelled lines."""

import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.pages.again import again_lines
from benchmarks.pages.against import comparable_block, compared_numbers
from benchmarks.pages.checkpoint_lines import Line, checkpoint_lines, value_words
from benchmarks.pages.published import papers
from benchmarks.pages.records import Result, grouped
from transfer.record import Record, features_in, stored_fields
from transfer.tasks import TASKS

TEXT_WIDTH = 100
LABEL_WIDTH = 32
"""Longest line of the text and widest column of labels, in characters."""


Explanation = Mapping[str, Sequence[Line]]
"""Lines by the title of their section, in the order in which they are shown."""


def as_text(explanation: Explanation) -> str:
    """Return the sections, with labels in one column and long texts on several lines."""
    parts = []
    for title, lines in explanation.items():
        labels = [label for label, _ in lines if len(label) <= LABEL_WIDTH]
        width = max(map(len, labels), default=0)
        parts.append("\n".join([title, *(_on_lines(*line, width) for line in lines)]))
    return "\n\n".join(parts)


def _on_lines(label: str, text: str, width: int) -> str:
    """Return label and text on lines of TEXT_WIDTH; a command is one line, to be copied."""
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

    A label that occurs several times in its section, such as "departure", holds the list of its
    texts, in their order.
    """
    return {
        title: {key: own[0] if len(own) == 1 else own for key, own in grouped(lines).items()}
        for title, lines in explanation.items()
    }


def explain(result: Result) -> Explanation:
    """Return all that is known about a number."""
    record, path = result.record, result.path
    sections = {
        "Number": list(_numbers(record)),
        "Published": list(_published(result)),
        "Protocol": list(_protocol(record)),
        "Checkpoint": list(checkpoint_lines(record)),
        "Data": list(_data(record)),
        "Computed": list(_computed(path, record)),
        "Again": list(again_lines(record, path)),
    }
    return {title: lines for title, lines in sections.items() if lines}


def _numbers(record: Record) -> Iterator[Line]:
    first = record.primary_metric or next(iter(record.metrics), "")
    names = sorted(record.metrics, key=lambda name: name != first)
    for name in names:
        yield f"{record.task} {name}", f"{record.metrics[name]:.2f}"


def _published(result: Result) -> Iterator[Line]:
    """Yield the published number beside each of ours, with the verdict, or why there is none."""
    reasons: dict[str, str] = {}
    found = False
    block = comparable_block([result])
    for paper in papers():
        for table in paper.tables:
            tasks = {row.task or column.task for row in table.rows for column in table.columns}
            if table.kind == "settings" or result.task not in tasks:
                continue
            pairs, apart = compared_numbers(table, block)
            label = f"{paper.name}, {table.number}"
            if apart:
                reasons[label] = next(iter(apart.values()))
            for pair in (pair for pair in pairs if pair.task == result.task):
                found = True
                difference = pair.difference
                text = f"{pair.paper:g}, ours {pair.ours.mean:.2f} ({difference.points:+.2f}): "
                if pair.judged:
                    text += f"{pair.verdict}, 95 % interval {difference.interval_text()}"
                else:
                    text += f"not judged, {pair.why_not_judged}"
                yield f"{label}: {pair.row.label}, {pair.column.label}", text
    if found:
        return
    if result.small:
        yield "none", f"the data are the {result.small} version"
    elif result.protocol_hash != result.paper_hash:
        yield "none", "the protocol is not the paper's, see its departures"
    else:
        yield from (reasons or {"none": "no paper prints a number of this task"}).items()


def _protocol(record: Record) -> Iterator[Line]:
    protocol = record.protocol
    yield "name", f"{protocol['name']}, schedule {record.schedule}, hash {protocol['hash']}"
    same = protocol["hash"] == protocol["paper_hash"]
    yield "as in the paper", "yes" if same else f"no, whose hash is {protocol['paper_hash']}"
    for sentence in record.departures:
        yield "departure", sentence
    task = TASKS.get(record.request.get("task", ""))
    paper = {} if task is None else _flat(json.loads(json.dumps(stored_fields(task))))
    for name, value in _flat(protocol["fields"]).items():
        text = value_words(value)
        if name in paper and value_words(paper[name]) != text:
            text += f"   (paper: {value_words(paper[name])})"
        yield name, text


def _flat(fields: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return the numbers of a protocol by name; those of a nested part as "recipe.iterations"."""
    flat: dict[str, Any] = {}
    for name, value in fields.items():
        if isinstance(value, Mapping) and value:
            flat |= _flat(value, f"{prefix}{name}.")
        else:
            flat[prefix + name] = value
    return flat


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
