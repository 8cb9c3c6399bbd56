"""A cell leaves a whole record, or none and a reason."""

import hashlib
import json
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace

import pytest
import torch

import transfer.cells.execution
import transfer.frozen.extraction
from transfer.cells.cell import Cell, check_records_of_name, finished
from transfer.cells.execution import evaluate, explain_errors
from transfer.cells.job import summary
from transfer.cells.request import Settings
from transfer.datasets.expected import DataError
from transfer.encoders.encoder import Encoder, Precision
from transfer.record import file_for_record, read_record, write_json_record


@pytest.fixture
def cell(small_backbone: Encoder, settings: Settings) -> Cell:
    return Cell.with_backbone(task="cars_knn", backbone=small_backbone, seed=0, settings=settings)


def test_a_record_tells_how_its_number_was_made(
    cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(transfer.frozen.extraction, "IMAGES_PER_BATCH", 8)
    record = evaluate(cell)
    assert record.protocol["fields"]["num_neighbors"] == 20
    assert record.protocol["hash"] != record.protocol["paper_hash"]
    assert "num_neighbors 20 instead of 200" in record.departures
    assert record.data["cars"]["small"] == "generated"
    weights = sum(p.numel() for p in cell.backbone.network().parameters())
    assert record.backbone["num_parameters"] == weights
    assert torch.__version__.startswith(record.versions["torch"])


def test_another_input_of_the_same_file_replaces_no_record(cell: Cell) -> None:
    stored = {"arch": "resnet18", "sha256": "other", "file_sha256": "same"}
    cell.path.parent.mkdir(parents=True)
    cell.path.write_text(json.dumps({"backbone": stored}))
    ours = replace(cell, backbone=replace(cell.backbone, file_sha256="same"))
    check_records_of_name([ours.with_request(task="cifar10_knn")])
    for refused in ([ours], [ours.with_request(task="cifar10_knn"), ours], [cell]):
        with pytest.raises(ValueError, match=f"{cell.path.name} is of resnet18, hash other"):
            check_records_of_name(refused)


def test_other_weights_that_finish_while_a_cell_waits_are_kept(
    cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wait_for_other(*_: object, **__: object) -> AbstractContextManager[None]:
        cell.path.parent.mkdir(parents=True)
        cell.path.write_text('{"backbone": {"sha256": "other"}}')
        return nullcontext()

    monkeypatch.setattr(transfer.cells.execution, "lock_cell", wait_for_other)
    with pytest.raises(ValueError, match="records of other weights"):
        evaluate(cell)


def test_an_edited_record_is_named_and_computed_again(
    cell: Cell, capsys: pytest.CaptureFixture[str]
) -> None:
    record = evaluate(cell)
    cell.path.write_text(cell.path.read_text().replace('"top1": ', '"top1": 1'))
    assert finished(cell) is None
    assert evaluate(cell).metrics == record.metrics == read_record(cell.path).metrics
    assert f"{cell.path}: not a usable record (edited" in capsys.readouterr().err


def test_a_finished_cell_is_not_run_again_but_for_other_weights_or_another_protocol(
    cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = evaluate(cell)
    monkeypatch.delattr(transfer.cells.execution, "store_record")
    assert evaluate(cell) == record
    for stale in (
        replace(record, backbone=record.backbone | {"sha256": "other"}),
        replace(record, protocol=record.protocol | {"hash": "other"}),
    ):
        write_json_record(cell.path, stale)
        assert finished(cell) is None


def test_broken_image_is_skipped_only_if_tolerated(own_cell: Cell) -> None:
    image = min(own_cell.settings.data.glob("stanford_cars/cars_train/*.jpg"))
    image.write_bytes(image.read_bytes()[:300])
    with pytest.raises(DataError, match=image.name):
        evaluate(own_cell)
    assert not own_cell.path.exists()
    record = evaluate(own_cell.with_request(settings=replace(own_cell.settings, tolerate=1)))
    assert record.data["cars"]["tolerated"] == 1


@pytest.mark.parametrize("of_gpu", [True, False])
def test_a_cell_without_memory_fails_in_one_line_that_names_what_needs_less(
    cell: Cell, monkeypatch: pytest.MonkeyPatch, of_gpu: bool
) -> None:
    def fails(*_: object) -> None:
        if of_gpu:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.\nframes")
        torch.empty(2**52, dtype=torch.uint8)

    monkeypatch.setattr(type(cell.task), "run", fails)
    with pytest.raises(RuntimeError, match=r"llocate.* --feature-precision") as error:
        evaluate(cell)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("task", "precision", "advice"),
    [
        ("cars_knn", "float32", ". To use less memory, pass --feature-precision bfloat16"),
        ("cars_knn", "bfloat16", ""),
        (
            "voc12_seg_linear",
            "bfloat16",
            ". To use less memory, pass a smaller --batch-size, or --precision bfloat16",
        ),
    ],
)
def test_advice_on_memory_names_options_that_help(
    cell: Cell, task: str, precision: Precision, advice: str
) -> None:
    cell = cell.with_request(task=task, settings=replace(cell.settings, features_in=precision))
    with pytest.raises(MemoryError) as error, explain_errors(cell):
        raise MemoryError("out of memory")
    assert str(error.value) == f"out of memory{advice}"


def test_records_of_both_arithmetics_lie_beside_each_other(
    cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("transfer.cells.execution.tf32_convolutions", lambda: True)
    rounded, exact = (
        cell.with_request(settings=replace(cell.settings, features_in=requested))
        for requested in ("bfloat16", "float32")
    )
    record = evaluate(rounded)
    assert "frozen features in bfloat16, batch norms folded" in record.departures
    assert (finished(cell), finished(exact)) == (record, None)  # auto takes what is there
    second = evaluate(exact)
    assert [item.details["features_in"] for item in (record, second)] == ["bfloat16", "float32"]
    assert [item.details["tf32_convolutions"] for item in (record, second)] == [False, True]
    assert (finished(rounded), finished(exact)) == (record, second)
    assert finished(cell) == second  # of both, what this machine would make
    assert summary(exact, second).endswith(str(file_for_record(cell.path, second)))
    assert file_for_record(cell.path, second) != cell.path


def test_newest_of_equal_records_is_used(cell: Cell) -> None:
    record = evaluate(cell)
    newer = replace(record, departures=["another"], finished="2100-01-01T00:00:00Z")
    file = file_for_record(cell.path, newer)
    assert file != cell.path
    write_json_record(file, newer)
    assert finished(cell) == newer


@pytest.mark.slow  # it trains on and predicts masks
def test_a_record_tells_tf32_of_a_head_on_features_in_bfloat16(
    cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in ("transfer.cells.execution", "transfer.tasks.recipe_training"):
        monkeypatch.setattr(f"{module}.tf32_convolutions", lambda: True)
    settings = replace(cell.settings, features_in="bfloat16")
    record = evaluate(cell.with_request(task="voc12_seg_linear", settings=settings))
    assert record.details["tf32_convolutions"] is True


def test_a_record_that_tells_no_arithmetic_is_of_float32(cell: Cell) -> None:
    record = evaluate(cell)
    del record.details["features_in"]
    write_json_record(cell.path, record)
    exact = replace(cell.settings, features_in="float32")
    assert finished(cell.with_request(settings=exact)) == record


def test_list_of_a_sampled_split_is_stored(
    cell: Cell,
) -> None:
    output = evaluate(cell.with_request(task="inat1k_knn")).details["list_of_inat1k"]
    stored = (cell.settings.runs / "lists" / output["file"]).read_bytes()
    assert output["file"].startswith("inat1k-resplit0-")
    assert hashlib.sha256(stored).hexdigest() == output["sha256"]
