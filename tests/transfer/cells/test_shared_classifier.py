"""A task finds or trains the classifier of another task."""

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from benchmarks.execution.graph import job_graph
from benchmarks.execution.local import run_jobs
from benchmarks.planning.options import RunAll
from benchmarks.planning.plan import PlannedCell, plan_cell, with_classifiers
from benchmarks.run_all import plan
from pretrain.running.lock import lock_folder
from transfer.cells import state
from transfer.cells.cell import Cell, finished
from transfer.cells.execution import evaluate, extract_together
from transfer.cells.request import Request, Settings
from transfer.encoders.encoder import random_backbone
from transfer.encoders.options import Checkpoint
from transfer.frozen.classifier import Heads, classifier_file, save_classifier
from transfer.frozen.feature_cache import Features, Predictions
from transfer.frozen.linear_heads import Pass
from transfer.hours import Measured
from transfer.record import read_record, write_json_record


@pytest.fixture
def cell(checkpoint: Path, settings: Settings) -> Cell:
    requested = Checkpoint(ckpt=checkpoint)
    return Cell.of(Request(task="objectnet13_eval", checkpoint=requested, settings=settings))


@pytest.fixture
def classifier_cell(cell: Cell) -> Cell:
    """The cell whose classifier the other one uses."""
    assert cell.classifier_cell is not None
    return cell.classifier_cell


@pytest.fixture
def trained(cell: Cell, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Backbones with trained classifiers; here these are drawn from their weights."""
    names: list[str] = []

    def drawn(training: Pass, test: Features, folder: Path, head: int) -> Predictions:
        backbone, images = training.backbone, training.images
        names.append(backbone.source)
        generator = torch.Generator().manual_seed(int(backbone.sha256[:8], 16))
        classes = len(images.class_names)
        weight = torch.randn(1, classes, backbone.feature_dim, generator=generator)
        stored = save_classifier(folder, Heads(weight, torch.zeros(1, classes)))
        scores, labels = torch.eye(classes), torch.arange(classes)
        return Predictions(scores, labels, {"weights": stored})

    monkeypatch.setattr("transfer.frozen.linear_heads.train_and_score", drawn)
    return names


def test_backbones_of_one_name_keep_their_classifiers(cell: Cell, trained: list[str]) -> None:
    first = evaluate(cell)
    form, name = cell.backbone.input, cell.backbone.name
    another = random_backbone(arch="resnet18", stem="imagenet", seed=1, input=form, name=name)
    elsewhere = replace(cell.settings, results=cell.settings.results / "other")
    second = evaluate(replace(cell.with_request(settings=elsewhere), backbone=another))
    cell.path.unlink()
    again = evaluate(cell)
    assert len(trained) == 2
    assert again.metrics == first.metrics
    assert again.details["classifier_weights"] == first.details["classifier_weights"]
    assert again.details["classifier_weights"] != second.details["classifier_weights"]


def test_weights_of_a_training_that_left_no_record_are_not_used(
    cell: Cell, classifier_cell: Cell, trained: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    first, workspace = evaluate(cell), classifier_cell.folders.work
    classifier_file(workspace, first.details["classifier_weights"]).unlink()
    save_classifier(workspace, Heads(torch.zeros(1, 100, 512), torch.zeros(1, 100)))
    cell.path.unlink()
    assert evaluate(cell).metrics == first.metrics
    output = capsys.readouterr().err
    assert "uses in100_linear@looc" in output


def test_a_classifier_of_other_arithmetic_is_told(
    cell: Cell, classifier_cell: Cell, trained: list[str]
) -> None:
    first = evaluate(cell)
    classifier_record = read_record(classifier_cell.path)
    details = {**classifier_record.details, "features_in": "bfloat16"}
    write_json_record(classifier_cell.path, replace(classifier_record, details=details))
    cell.path.unlink()
    second = evaluate(cell)
    assert len(trained) == 1
    output = [record.details["classifier_features_in"] for record in (first, second)]
    assert output == ["float32", "bfloat16"]
    assert second.details["features_in"] == "float32"
    departure = "classifier: trained on features in bfloat16"
    assert [departure in record.departures for record in (first, second)] == [False, True]


def test_classifier_of_another_process_is_awaited(
    cell: Cell,
    classifier_cell: Cell,
    trained: list[str],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    second = ExitStack()
    classifier_cell.folders.work.mkdir(parents=True)
    second.enter_context(lock_folder(classifier_cell.folders.work))

    def train_meanwhile(seconds: float) -> None:
        second.close()
        evaluate(classifier_cell)

    monkeypatch.setattr("time.sleep", train_meanwhile)
    evaluate(cell)
    assert len(trained) == 1
    assert "another process works on in100_linear@looc" in capsys.readouterr().err


def test_another_classifier_makes_a_record_stale(cell: Cell, trained: list[str]) -> None:
    record = evaluate(cell)
    assert finished(cell) == record
    details = record.details | {"classifier": "other"}
    write_json_record(cell.path, replace(record, details=details))
    assert finished(cell) is None


@pytest.mark.parametrize("key", ["objectnet13_eval", "imagenet_c100_eval"])
def test_joint_extraction_trains_no_classifier(
    cell: Cell, classifier_cell: Cell, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    second, workspace = cell.with_request(task=key), classifier_cell.folders.work
    extract_together([second])
    assert not workspace.exists()
    monkeypatch.setattr("transfer.frozen.extraction.extract", None)  # all is there
    name = save_classifier(workspace, Heads(torch.zeros(1, 1, 512), torch.zeros(1, 1)))
    folders = replace(second.folders, classifier=classifier_file(workspace, name))
    assert len(second.task.prepare(second.feature_backbone, folders).test.features)


def run_cells(rows: list[PlannedCell]) -> list[str]:
    """Run the rows in this process.

    Return the reasons of those that failed.
    """
    run_jobs(job_graph(rows), 1, rows[0].cell.settings)
    return [state.failure(row.cell) for row in rows if finished(row.cell) is None]


def keys_of(rows: list[PlannedCell]) -> list[tuple[str, str]]:
    return [(row.cell.key, row.state) for row in rows]


def test_the_plan_counts_a_classifier_that_nobody_asked_for_once(
    cell: Cell, trained: list[str]
) -> None:
    cells = [cell, cell.with_request(task="imagenet_c100_eval")]
    rows = with_classifiers([plan_cell(item, Measured()) for item in cells])
    looc = "in100_linear@looc"
    assert keys_of(rows) == [(looc, "run"), (cells[0].key, "run"), (cells[1].key, "run")]
    assert rows[0].gpu_hours > 0
    assert rows[1].reason == f"uses the classifier of {looc}"
    evaluate(cell)
    rows = with_classifiers([plan_cell(item, Measured()) for item in cells])
    assert keys_of(rows) == [(cells[0].key, "cached"), (cells[1].key, "run")]


def test_the_plan_trains_again_where_the_weights_of_a_finished_record_are_gone(
    cell: Cell, classifier_cell: Cell, trained: list[str]
) -> None:
    requested = classifier_cell.with_request(with_weights=False)
    name = evaluate(cell).details["classifier_weights"]
    cell.path.unlink()
    classifier_file(classifier_cell.folders.work, name).unlink()
    assert plan_cell(requested, Measured()).state == "cached"
    rows = with_classifiers([plan_cell(requested, Measured()), plan_cell(cell, Measured())])
    assert keys_of(rows) == [(requested.key, "run"), (cell.key, "run")]
    assert run_cells(rows) == []
    assert len(trained) == 2  # by the cell of its own, not by the one that uses it
    assert finished(classifier_cell) is not None


def test_failed_classifier_is_tried_once(
    cell: Cell, classifier_cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    training = Mock(side_effect=ArithmeticError("the probe diverged"))
    monkeypatch.setattr("transfer.frozen.linear_heads.train_and_score", training)
    cells = [cell, cell.with_request(task="imagenet_c100_eval")]
    reasons = run_cells(with_classifiers([plan_cell(item, Measured()) for item in cells]))
    assert training.call_count == 1
    failed = "ArithmeticError: the probe diverged"
    reason = f"ClassifierError: classifier in100_linear@looc failed: {failed}"
    assert reasons == [failed, reason, reason]


def test_cells_of_one_task_are_extracted_together_one_after_another(
    cell: Cell, other_checkpoint: Path, trained: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    second = Checkpoint(ckpt=other_checkpoint)
    cells = [cell, Cell.of(replace(cell.request, checkpoint=second))]
    assert run_cells(with_classifiers([plan_cell(item, Measured()) for item in cells])) == []
    assert capsys.readouterr().err.count("objectnet13 test for 2 backbones") > 0


def test_a_request_with_classifiers_still_knows_its_checkpoints(
    cell: Cell, checkpoint: Path, trained: list[str]
) -> None:
    request = RunAll(ckpt=(checkpoint,), random=True, settings=cell.settings, tasks=cell.key)
    rows, _ = plan(request)
    assert [row.cell.backbone.name for row in rows] == [*["mine"] * 2, *["random"] * 2]
    requested = [row.cell.request.checkpoint.random for row in rows]
    assert requested == [*[False] * 2, *[True] * 2]
    evaluate(replace(rows[0].cell, backbone=replace(cell.backbone, name="mine")))
    assert [row.cell.backbone.name for row in plan(request)[0]] == ["mine", "random", "random"]


def test_an_ablation_needs_the_classifier_of_the_task_itself(
    cell: Cell, classifier_cell: Cell
) -> None:
    assert (
        cell.with_request(variant="plain", changes={"border_px": 0}).classifier_cell
        == classifier_cell
    )
