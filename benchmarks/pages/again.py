"""The command that makes a record's number again, as the record stores it."""

import shlex
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

from benchmarks.pages.checkpoint_lines import Line, value_words
from benchmarks.pages.overview import CURVE_SEPARATOR
from benchmarks.pages.records import UNTRAINED
from transfer.convert.architectures import network_words
from transfer.record import RECORDS, SNAPSHOTS, Record, protocol_hash
from transfer.tasks import TASKS

COMMAND = "command"
"""Label of a command, which can be copied from the text."""
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
    if of_snapshot:
        curve = str(record.backbone["name"]).rpartition(CURVE_SEPARATOR)[0]
        words = ["python", "benchmarks/run_all.py", "--snapshots", "DIR", "--name", curve]
        words += ["--tasks", key]
    else:
        words = ["python", "-m", "transfer", key, *record.request["backbone"]]
        words += ["--as", record.declared] if record.declared else []
        words += ["--seed", str(record.seed)]
    words += ["--data", "DATA", "--schedule", record.schedule]
    words += ["--results", str(results)] if results not in (None, DEFAULT_RESULTS) else []
    yield COMMAND, shlex.join([*words, *record.request["options"]])
    if of_snapshot:
        word, meaning = "DIR", _snapshot_file(record)
        same = "DIR holds the snapshot of the record"
    elif (record.backbone.get("made_by") or {}).get("method") == UNTRAINED:
        word, meaning = file_of(record), _network_of(record)
        same = f"{word} has the same network and input"
    else:
        word, meaning = file_of(record), _hash_of_file(record)
        same = f"{word} is the file of the record"
    yield word, meaning
    data = ", ".join(f"{name} {_data_words(told)}" for name, told in record.data.items())
    generated = any(told["small"] == "generated" for told in record.data.values())
    written = "; python -m transfer generate-data writes them" if generated else ""
    yield "DATA", f"the folder of all data sets, with {data}{written}"
    if record.engine == "detectron2" and find_spec("detectron2") is None:
        yield "engine", "detectron2 is not installed here, and the command needs it"
    fingerprints = ", ".join(f"{one} {told['fingerprint']}" for one, told in record.data.items())
    if protocol_hash(record.task, TASKS[key]) != record.protocol["paper_hash"]:
        yield "cached", "no: the numbers of the protocol have changed since"
    elif results is None:
        yield "cached", f"no: the record is not in a results folder ({path})"
    else:
        same += f" and DATA has the fingerprint of the record: {fingerprints}"
        yield "cached", f"yes, as long as {same}"


def file_of(record: Record) -> str:
    """Return the path of the checkpoint as it was given; empty for a record without a command."""
    return str([*record.request.get("backbone", []), "", ""][1])


def _place(path: Path) -> tuple[Path | None, bool]:
    """Return the results folder of a record's file, if any, and if it is that of a snapshot."""
    records = path.parent.parent
    of_snapshot = records.name == SNAPSHOTS
    records = records.parent if of_snapshot else records
    return (records.parent, of_snapshot) if records.name == RECORDS else (None, False)


def _data_words(told: Mapping[str, object]) -> str:
    small = f"{told['small']} version, " if told["small"] else ""
    return f"({small}fingerprint {told['fingerprint']})"


def _hash_of_file(record: Record) -> str:
    known = f"the checkpoint. The sha256 of the file is {record.backbone.get('file_sha256')}"
    if Path(file_of(record)).name != file_of(record):
        return known
    return known.replace(".", ", which had this name; the record does not hold its folder.", 1)


def _snapshot_file(record: Record) -> str:
    name = str(record.backbone["name"]).rpartition(CURVE_SEPARATOR)[2]
    return (
        f"the run's folder of snapshots. The record is that of {name}.pt in it, and the sha256 of "
        f"the file is {record.backbone.get('file_sha256')}; a folder with this file alone gives "
        "this cell alone, since the command plans one for each snapshot"
    )


def _network_of(record: Record) -> str:
    """Return which checkpoints have the network of a random initialization."""
    backbone, form = record.backbone, record.request["input"]
    told = {"size_px": "size in px", "mean": "mean", "std": "deviation"}
    held = " and ".join(f"{told[part]} {value_words(form[part])}" for part in told if part in form)
    return (
        f"any checkpoint of a {network_words(backbone['arch'], backbone['stem'])} for images of "
        f"{held}. The command takes network and input from it, not the weights. The hash of "
        f"network, input and drawn weights is {backbone['sha256']}"
    )
