"""The command that makes a record's number again, as the record stores it."""

import shlex
from collections.abc import Iterator
from pathlib import Path

from benchmarks.pages.checkpoint_lines import Line, value_words
from benchmarks.pages.overview import CURVE_SEPARATOR
from benchmarks.pages.records import UNTRAINED
from transfer.convert.architectures import network_words
from transfer.record import RECORDS, SNAPSHOTS, Record, protocol_hash
from transfer.tasks import TASKS

DEFAULT_RESULTS = Path("results")


def again_lines(record: Record, path: Path) -> Iterator[Line]:
    """Yield the command that makes the number again, what its words mean, and if it is cached."""
    key = record.request.get("task")
    if key not in TASKS or not record.request.get("backbone"):
        yield (
            "not possible",
            "the record holds no command: Python code or an earlier version made it",
        )
        return
    results, of_snapshot = _place(path)
    curve, _, snapshot = str(record.backbone["name"]).rpartition(CURVE_SEPARATOR)
    if of_snapshot:
        words = ["python", "benchmarks/run_all.py", "--snapshots", "DIR", "--name", curve]
        words += ["--tasks", key]
    else:
        words = ["python", "-m", "transfer", key, *record.request["backbone"]]
        words += ["--as", record.declared] if record.declared else []
        words += ["--seed", str(record.seed)]
    words += ["--data", "DATA", "--schedule", record.schedule]
    words += ["--results", str(results)] if results not in (None, DEFAULT_RESULTS) else []
    yield "command", shlex.join([*words, *record.request["options"]])
    hash_words = f"with the sha256 {record.backbone.get('file_sha256')}"
    if of_snapshot:
        file = "DIR"
        yield file, f"a folder of the run's snapshots; the record is of {snapshot}.pt {hash_words}"
    elif (record.backbone.get("made_by") or {}).get("method") == UNTRAINED:
        file = file_of(record)
        yield file, _network_of(record)
    else:
        file = file_of(record)
        yield file, f"the checkpoint {hash_words}; the record may not hold its folder"
    generated = any(told["small"] == "generated" for told in record.data.values())
    written = "; python -m transfer generate-data writes them" if generated else ""
    yield "DATA", f"the folder of all data sets{written}"
    if protocol_hash(record.task, TASKS[key]) != record.protocol["paper_hash"]:
        yield "cached", "no: the numbers of the protocol have changed since"
    elif results is None:
        yield "cached", f"no: the record is not in a results folder ({path})"
    else:
        yield "cached", f"yes, as long as {file} and DATA are those of the record"


def file_of(record: Record) -> str:
    """Return the path of the checkpoint as it was given; empty for a record without a command."""
    return str([*record.request.get("backbone", []), "", ""][1])


def _place(path: Path) -> tuple[Path | None, bool]:
    """Return the results folder of a record's file, if any, and if it is that of a snapshot."""
    records = path.parent.parent
    of_snapshot = records.name == SNAPSHOTS
    records = records.parent if of_snapshot else records
    return (records.parent, of_snapshot) if records.name == RECORDS else (None, False)


def _network_of(record: Record) -> str:
    """Return which checkpoints have the network of a random initialization."""
    backbone, form = record.backbone, record.request["input"]
    told = {"size_px": "size in px", "mean": "mean", "std": "deviation"}
    held = " and ".join(f"{told[part]} {value_words(form[part])}" for part in told if part in form)
    return (
        f"any checkpoint of a {network_words(backbone['arch'], backbone['stem'])} for images of "
        f"{held}: the command takes the network and the input from it, not the weights"
    )
