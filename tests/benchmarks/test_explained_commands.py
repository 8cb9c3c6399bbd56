"""The command that makes a record again plans exactly the record's cell."""

import json
import shlex
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest
import tyro

from benchmarks.planning.options import RunAll
from benchmarks.results.explanation import repeat_lines
from pretrain.running.processes import assume_gpus
from tests.synthetic_records import put
from transfer.cells import cell as cell_module
from transfer.cells import command
from transfer.cells.cell import Cell
from transfer.cells.command import Evaluate
from transfer.cells.execution import stored_request
from transfer.cells.request import Request, command_line_args
from transfer.encoders.encoder import Encoder, InputFormat, random_backbone, with_heads
from transfer.encoders.options import Checkpoint
from transfer.record import Record, protocol_hash, read_record
from transfer.tasks import reading_of, task_of

RECORDS = Path(__file__).parents[2] / "results" / "reference" / "records"
(OWN,) = RECORDS.glob("cifar10-vicreg/cifar10_knn.*.json")
NAMES = ("name", "arch", "stem", "sha256", "file_sha256", "source", "made_by")


def lines_of(path: Path) -> dict[str, str]:
    return dict(repeat_lines(read_record(path), path))


def planned_cell(words: list[str], backbone: Encoder, monkeypatch: pytest.MonkeyPatch) -> Cell:
    """Return the evaluation that a command plans without GPUs."""
    if words[:3] == ["python", "-m", "transfer"]:
        monkeypatch.setattr(cell_module, "open_file", lambda *_, **__: (backbone, None))
        monkeypatch.setattr(command, "check_is_checkpoint", lambda _: None)
        return Cell.of(tyro.cli(Evaluate, args=words[3:]).checked().request)
    request = tyro.cli(RunAll, args=words[2:])
    snapshot = Checkpoint(ckpt=Path("x"), snapshot=True)
    requested = Request(task=request.tasks, checkpoint=snapshot, settings=request.settings)
    return Cell(request=requested, backbone=backbone)


def stand_in(record: Record) -> Encoder:
    """The record's backbone without weights."""
    form: dict[str, Any] = {k: v for k, v in record.request["input"].items() if k == "size_px"}
    expected = {name: record.backbone[name] for name in NAMES}
    return Encoder(**expected, state_dict={}, input=InputFormat(**form))


def test_commands_of_all_own_records_plan_them(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds: dict[str, Path] = {}  # one command of each kind: to read a command line takes long
    for path in sorted(RECORDS.rglob("*.json")):
        record = read_record(path)
        assert lines_of(path)["cached"].startswith("yes"), path
        snapshot = path.parts[-3] == "snapshots"
        kind = (snapshot, record.request["task"], record.request["options"], record.schedule)
        kinds.setdefault(str(kind), path)
    assert len(kinds) >= 10
    for path in kinds.values():
        record = read_record(path)
        args = shlex.split(lines_of(path)["command"])
        with assume_gpus(0):
            cell = planned_cell(args, stand_in(record), monkeypatch)
            ours = protocol_hash(record.task, cell.task)
        assert (ours, cell.path) == (record.protocol["hash"], path), args


def stored(cell: Cell) -> Path:
    """Return the record of an evaluation, without numbers and data."""
    ours, task = read_record(OWN), reading_of(cell.key)[0]
    record = replace(
        ours,
        backbone={name: getattr(cell.backbone, name) for name in NAMES},
        task=task,
        protocol=ours.protocol | {"paper_hash": protocol_hash(task, task_of(cell.key))},
        schedule=cell.settings.schedule,
        seed=cell.seed,
        request=stored_request(cell),
        declared=cell.backbone.declared,
    )
    put(cell.path.parent, cell.path.name, asdict(record))
    return cell.path


@pytest.mark.parametrize(
    "words",
    [
        "coco_keypoint --gpus 1 --engine torchvision --images-per-gpu 2 --schedule smoke",
        "voc0712_det_c4 --gpus 1 --engine torchvision --batch-size 8 --image-px 96",
        "voc12_seg_fcn --gpus 1 --learning-rates 0.01 0.3 --seed 3",
        "cifar10_semi_10pct --precision bfloat16 --tolerate 3",
        "cifar10_knn --checkpoint-key student --feature-precision bfloat16",
        "objectnet13_eval --schedule 0.5 --trained-with moco/in1k-r50-v2",
        "cifar10_knn --random",
    ],
)
def test_the_stored_command_asks_for_the_same_cell(
    words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    requested = [*words.split(), "--ckpt", "a/mine.pt", "--results", str(tmp_path)]
    checkpoint = tyro.cli(Evaluate, args=requested).request.checkpoint
    whole = random_backbone(arch="resnet50", stem="imagenet", seed=0, name="mine")
    opened = replace(checkpoint, name="mine")
    whole = replace(whole, checkpoint=opened, file_sha256="b" * 64, made_by={})
    with assume_gpus(0):
        cell = planned_cell(["python", "-m", "transfer", *requested], whole, monkeypatch)
        lines = lines_of(stored(cell))
        again = planned_cell(shlex.split(lines["command"]), whole, monkeypatch)
        assert (again.task, again.path, again.seed) == (cell.task, cell.path, cell.seed)
    assert lines["cached"].startswith("yes, if a/mine.pt ")
    assert set(words.split()) <= set(lines["command"].split()), lines["command"]
    assert ("any checkpoint of a resnet50" in lines["a/mine.pt"]) == checkpoint.random


def test_removed_flags_are_left_out(tmp_path: Path) -> None:
    content = json.loads(OWN.read_text())
    put(tmp_path, "new.json", content)
    content["request"]["options"] += ["--trust-topology", "--rates-at-once", "7"]
    put(tmp_path, "old.json", content)
    old, new = (lines_of(tmp_path / name)["command"] for name in ("old.json", "new.json"))
    assert old == new


def test_command_of_a_record_states_its_heads() -> None:
    whole = random_backbone(arch="resnet18-heads4", stem="imagenet", seed=0, name="looc")
    some = with_heads(replace(whole, checkpoint=Checkpoint(ckpt=Path("looc.pt"))), (2, 0))
    args = "--ckpt looc.pt --random --heads 2 0"
    assert command_line_args(some.with_random_weights().checkpoint) == args.split()
    assert with_heads(whole, (1,)).checkpoint is None  # made in Python
    path = next((RECORDS / "snapshots").rglob("*@epoch0003/*.json"))
    lines = lines_of(path)
    command = "python benchmarks/run_all.py --snapshots DIR --name "
    assert lines["command"].startswith(command)
    assert "epoch0003.pt" in lines["DIR"]
    assert lines["cached"].startswith("yes, if DIR ")


def test_what_has_no_command_or_another_protocol_says_so(tmp_path: Path) -> None:
    content = json.loads(OWN.read_text())
    changed = {"protocol": content["protocol"] | {"paper_hash": "another"}}
    for changes, label, args in (
        ({"request": {}}, "not possible", "Python code or an earlier version"),
        (changed, "cached", "no: the protocol has changed since"),
    ):
        put(tmp_path, "record.json", content | changes)
        assert args in lines_of(tmp_path / "record.json")[label]
