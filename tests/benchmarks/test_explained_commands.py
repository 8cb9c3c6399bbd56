"""The command that makes a record again plans exactly the record's cell."""

import json
import shlex
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import tyro

import transfer.cells.execution
from benchmarks.pages.again import Again, make_again
from benchmarks.planning.cells import cells_of, split_words
from benchmarks.planning.options import RunAll, settings_of
from pretrain.running.processes import assume_gpus
from tests.synthetic_records import put
from transfer.backbone import Backbone, InputFormat
from transfer.cells import command
from transfer.cells.command import Evaluate
from transfer.cells.execution import request_of
from transfer.cells.request import Cell, CellSettings, classifier_hash
from transfer.finetuning.options import TrainingOptions
from transfer.record import Record, protocol_hash, read_record, record_path, stored_fields
from transfer.tasks import reading_of, task_of

RECORDS = Path(__file__).parents[2] / "results" / "records"
OWN_LAYOUT = "backbone.pt: ssl-backbone/1 layout, prefix state_dict."
DRAWN = "random initialisation"


@cache
def parsed(words: tuple[str, ...]) -> Evaluate | RunAll:
    if words[:3] == ("python", "-m", "transfer"):
        return tyro.cli(Evaluate, args=words[3:])
    assert words[:2] == ("python", "benchmarks/run_all.py")
    return tyro.cli(RunAll, args=words[2:])


def stand_in(record: Record) -> Backbone:
    """The record's backbone without weights, with the input that its pre-training names."""
    made_by = record.backbone["made_by"]
    settings = made_by.get("settings") or {}
    size_px = settings.get("test_px") or record.protocol["fields"].get("crop_px", 224)
    form = InputFormat(size_px=size_px)
    if settings:
        mean, std = (tuple(settings[f"views.{name}"]) for name in ("mean", "std"))
        form = replace(form, mean=mean, std=std)
    return Backbone(**(record.backbone | {"state_dict": {}, "input": form}))


def planned_cell(again: Again, backbone: Backbone, monkeypatch: pytest.MonkeyPatch) -> Cell:
    """The one cell that the command plans on a machine without a GPU."""
    words, name = shlex.split(again.command), None
    if "--name" in words:  # without it, many records have the same command, which is read once
        place = words.index("--name")
        name = words[place + 1]
        del words[place : place + 2]
    request = parsed(tuple(words))
    if isinstance(request, RunAll):
        settings = settings_of(request)
        assert backbone.name.startswith(f"{name}@")
        (cell,) = cells_of([backbone], split_words(request.tasks), settings)
        return cell
    whole = replace(backbone, name=name or "file")
    monkeypatch.setattr(command, "load", lambda *_, **__: whole)
    monkeypatch.setattr(Backbone, "random_twin", lambda whole: replace(whole, name="random"))
    evaluate = replace(request, name=name, dry_run=True)
    assert evaluate.random == (backbone.name == "random")
    return evaluate.cell()


def plans(cell: Cell, record: Record) -> bool:
    """True if the cell is the record's, down to the protocol's hash."""
    with assume_gpus(0):
        own = protocol_hash(reading_of(cell.key)[0], cell.task)
    return (own, cell.seed, cell.settings.schedule) == (
        record.protocol["hash"],
        record.seed,
        record.schedule,
    )


def test_commands_of_all_own_records_plan_them(monkeypatch: pytest.MonkeyPatch) -> None:
    files = [path for path in RECORDS.rglob("*.json") if not path.name.endswith(".failed.json")]
    answers = []
    for path in files:
        record = read_record(path)
        again = make_again(record, path)
        assert again is not None, path
        cell = planned_cell(again, stand_in(record), monkeypatch)
        cached = again.cached.startswith("yes")
        assert cached == (plans(cell, record) and cell.path == path), (path, again)
        answers.append(cached)
    assert any(answers)


def made(key: str, folder: Path, options: TrainingOptions | None = None, **changes: Any) -> Path:
    """The record that a cell with these options leaves, without its numbers."""
    backbone: dict[str, Any] = {
        "name": "mine",
        "arch": "resnet50",
        "stem": "imagenet",
        "sha256": "a" * 64,
    }
    backbone |= {"file_sha256": "b" * 64, "source": OWN_LAYOUT, "made_by": {}}
    backbone |= changes.pop("backbone", {})
    settings = CellSettings(
        data=folder,
        results=folder,
        runs=folder,
        schedule=changes.get("schedule", "paper"),
        training=options or TrainingOptions(),
    )
    weights = Backbone(**(backbone | {"state_dict": {}, "input": InputFormat()}))
    cell = Cell(key=key, backbone=weights, seed=changes.get("seed", 0), settings=settings)
    details: dict[str, Any] = {"num_processes": options.gpus} if options and options.gpus else {}
    if cell.task.needs:
        details["classifier"] = classifier_hash(cell)
    task = reading_of(key)[0]
    protocol = {"hash": protocol_hash(task, cell.task), "name": cell.task.protocol}
    protocol["paper_hash"] = protocol_hash(task, task_of(key))
    told = {"fingerprint": "f", "small": "", "counts": {}, "tolerated": changes.pop("bad", 0)}
    content = Record(
        backbone=backbone,
        task=task,
        protocol=protocol | {"fields": stored_fields(cell.task)},
        schedule=settings.schedule,
        seed=cell.seed,
        engine=options.engine if options else "torch",
        metrics={},
        details=details | changes.pop("details", {}),
        data=dict.fromkeys(cell.task.datasets(), told),
        departures=[],
        wall_s=1.0,
        peak_memory_gb=1.0,
        request=request_of(cell),
        primary_metric=cell.task.primary_metric,
        heading=cell.task.heading,
    )
    path = cell.path
    put(path.parent, path.name, asdict(content) | changes)
    return path


def again_of(path: Path) -> Again:
    again = make_again(read_record(path), path)
    assert again is not None
    return again


@pytest.mark.parametrize(
    ("key", "given", "shown"),
    [
        ("coco_keypoint", {"gpus": 2, "engine": "torchvision", "images_per_gpu": 2}, "--gpus 2"),
        ("voc0712_det_c4", {"gpus": 1, "batch_size": 8, "image_px": 96}, "--batch-size 8"),
        ("voc12_seg_fcn", {"gpus": 1, "learning_rates": (0.01, 0.3)}, "--learning-rates 0.01 0.3"),
        ("cifar10_semi_10pct", {"precision": "bfloat16"}, "--precision bfloat16 --data"),
        ("cifar10_knn", {"batch_size": 8}, "--seed 0 --data"),
    ],
)
def test_training_options_are_those_of_the_request(
    key: str, given: Mapping[str, Any], shown: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    many = SimpleNamespace(num_processes=given.get("gpus", 1))
    monkeypatch.setattr(transfer.cells.execution, "this_process", lambda: many)
    path = made(key, tmp_path, TrainingOptions(**given), schedule="smoke")
    again, record = again_of(path), read_record(path)
    assert again.cached.startswith("yes"), again.cached
    cell = planned_cell(again, stand_in(record), monkeypatch)
    assert plans(cell, record)
    assert cell.path == path
    assert shown in again.command


def test_a_classifiers_protocol_counts(tmp_path: Path) -> None:
    path = made("objectnet13_eval", tmp_path, schedule="0.5")
    assert again_of(path).cached.startswith("yes")
    content = json.loads(path.read_text())
    put(path.parent, path.name, content | {"details": {"classifier": "another"}})
    assert again_of(path).cached == (
        "no: the protocol of the classifier that the task uses has changed since"
    )


def test_what_a_file_does_not_say_is_said_by_options(tmp_path: Path) -> None:
    source = (
        "dino.pth: DINO layout, prefix student.backbone. (asked for by --branch student); running "
        "statistics on 64 photographs fit another network: resnet50"
    )
    path = made("cifar10_knn", tmp_path, backbone={"source": source}, declared="a/b", bad=3)
    command = again_of(path).command
    assert command.startswith(
        "python -m transfer cifar10_knn --ckpt dino.pth --name mine --branch student --as a/b "
        "--trust-topology --seed 0 --data DATA"
    )
    assert command.endswith(f"--results {tmp_path} --tolerate 3 --features-in float32")


@pytest.mark.parametrize(("seed", "answer"), [(0, "yes"), (3, "no: the weights were drawn by")])
def test_a_random_network_takes_a_file_for_its_shape_only(
    tmp_path: Path, seed: int, answer: str
) -> None:
    drawn = {"method": DRAWN, "seed": seed}
    random = {"name": "random", "file_sha256": "", "made_by": drawn, "source": f"{DRAWN} of x"}
    again = again_of(made("cifar10_knn", tmp_path, backbone=random))
    assert "--ckpt FILE --random --seed 0" in again.command
    assert "--name" not in again.command
    meaning = dict(again.notes)["FILE"]
    assert "any checkpoint of a resnet50, imagenet stem for images of size in px 224" in meaning
    assert "and mean 0.485 0.456 0.406 and deviation" in meaning
    assert again.cached.startswith(answer)


def test_snapshots_have_a_command_of_their_own(tmp_path: Path) -> None:
    path = made("cifar10_knn", tmp_path, backbone={"name": "run@epoch0003"})
    records = tmp_path / "records" / "snapshots"
    file = record_path(records, "run@epoch0003", "cifar10_knn", "uniclr-2022/1", "paper", 0)
    file.parent.mkdir(parents=True)
    path.rename(file)
    again = again_of(file)
    assert again.command.startswith(
        "python benchmarks/run_all.py --snapshots DIR --name run --tasks cifar10_knn --data DATA"
    )
    assert "epoch0003.pt" in dict(again.notes)["DIR"]
    assert again.cached.startswith("yes, as long as DIR holds the snapshot")


def test_a_request_that_is_none_is_told_not_raised(tmp_path: Path) -> None:
    path = made("voc12_seg_fcn", tmp_path, TrainingOptions(gpus=1))
    content = json.loads(path.read_text())
    content["request"]["options"]["batch_size"] = "many"
    put(path.parent, path.name, content)
    assert again_of(path).cached.startswith("no: the stored request gives no protocol")
