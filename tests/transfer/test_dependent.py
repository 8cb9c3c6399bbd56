"""Tasks that use another task's classifier: found by its record, trained if missing, and said."""

from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import transfer.cell
from benchmarks.plan import planned
from transfer.backbone import Backbone, InputFormat, random_backbone
from transfer.cell import Cell, Place, _alone, evaluate, extract_together, finished, prepare
from transfer.classifier import Heads, classifier_file, save_classifier
from transfer.datasets.generate import generate
from transfer.record import read_record


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("robustness")
    generate(folder, keys=("in1k", "imagenet_c100", "objectnet13"))
    return folder


@pytest.fixture
def cell(small_backbone: Backbone, place: Place, data: Path) -> Cell:
    return Cell(
        key="objectnet13_eval", backbone=small_backbone, seed=0, place=replace(place, data=data)
    )


@pytest.mark.slow
def test_a_missing_classifier_is_trained_and_said_a_finished_one_is_used(
    cell: Cell, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first = evaluate(cell)
    assert "needs that of in100_linear@looc, but it has no record" in capsys.readouterr().err
    assert cell.needed is not None
    assert finished(cell.needed) is not None
    assert first.details["classifier"] == read_record(cell.needed.path).protocol["hash"]
    cell.path.unlink()
    monkeypatch.setattr("transfer.tasks.linear_probe.probed", None)
    again = evaluate(cell)
    assert "uses that of in100_linear@looc" in capsys.readouterr().err
    assert again.metrics == first.metrics
    corrupted = replace(cell, key="imagenet_c100_eval")
    assert set(evaluate(corrupted).metrics) >= {"all_top1", "all19_top1", "sev3plus_top1"}


@pytest.mark.slow
def test_a_record_without_its_weights_is_trained_again_to_the_same(
    cell: Cell, capsys: pytest.CaptureFixture[str]
) -> None:
    first = evaluate(cell)
    assert cell.needed is not None
    before = read_record(cell.needed.path).metrics
    classifier_file(cell.needed.folders.work).unlink()
    cell.path.unlink()
    assert evaluate(cell).metrics == first.metrics
    assert "but its weights are gone: training it first" in capsys.readouterr().err
    assert read_record(cell.needed.path).metrics == before


@pytest.mark.slow
def test_a_classifier_that_another_process_trains_is_waited_for(
    cell: Cell, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cell.needed is not None
    other = ExitStack()
    (cell.needed.folders.work).mkdir(parents=True)
    other.enter_context(_alone(cell.needed.folders.work))
    monkeypatch.setattr("time.sleep", lambda seconds: other.close())  # it ends in the meantime
    assert evaluate(cell).metrics
    told = capsys.readouterr().err
    assert told.index("waits for that of in100_linear@looc") < told.index("training it first")


def test_another_classifier_makes_a_record_stale(
    cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = transfer.cell._classifier_hash(cell)
    longer = replace(cell, place=replace(cell.place, schedule="short"))
    assert transfer.cell._classifier_hash(longer) != mine
    knn = replace(cell, key="in100_knn")
    assert transfer.cell._classifier_hash(knn) == ""


@pytest.mark.parametrize("key", ["objectnet13_eval", "imagenet_c100_eval"])
def test_preparing_extracts_what_the_task_itself_looks_at_and_trains_no_classifier(
    cell: Cell, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = replace(cell, key=key)
    prepare(other)
    assert other.needed is not None
    assert not other.needed.folders.work.exists()
    monkeypatch.setattr("transfer.features.extract", None)  # all is there
    save_classifier(other.needed.folders.work, Heads(torch.zeros(1, 1, 512), torch.zeros(1, 1)))
    assert len(other.task.prepare(other.computing, other.folders).test.features)


def test_several_backbones_are_extracted_in_one_pass(
    cell: Cell, capsys: pytest.CaptureFixture[str]
) -> None:
    form = InputFormat(size_px=32)
    other = random_backbone(arch="resnet18", stem="imagenet", seed=1, input=form, name="other")
    corrupted = replace(cell, key="imagenet_c100_eval")
    extract_together([corrupted, replace(corrupted, backbone=other)])
    assert "imagenet_c100 test for 2 backbones" in capsys.readouterr().err
    assert len(list(corrupted.folders.cache.rglob("*.npy"))) == 2


def test_the_plan_says_whose_classifier_is_used_and_whether_it_is_there(cell: Cell) -> None:
    assert planned(cell).why == "classifier of in100_linear@looc: trained first"
