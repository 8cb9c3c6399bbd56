"""Tasks that use another task's classifier: found by its record, trained if missing, and said."""

import json
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from benchmarks.execution.sequence import run_cells
from benchmarks.planning.options import RunAll
from benchmarks.planning.plan import PlannedCell, plan_cell, with_classifiers
from benchmarks.run_all import plan
from pretrain.running.lock import lock_folder, wait_for_lock
from transfer.backbone import Backbone, random_backbone
from transfer.cells.execution import evaluate, prepare
from transfer.cells.request import Cell, CellSettings, ClassifierError, classifier_hash, finished
from transfer.datasets.images import Images
from transfer.datasets.synthetic.generate import generate
from transfer.frozen.classifier import Heads, classifier_file, save_classifier
from transfer.frozen.features import Predictions
from transfer.record import failure_path, read_record, write_json_record


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("robustness")
    generate(folder, keys=("in1k", "imagenet_c100", "objectnet13"))
    return folder


@pytest.fixture
def cell(small_backbone: Backbone, settings: CellSettings, data: Path) -> Cell:
    return Cell(
        key="objectnet13_eval",
        backbone=small_backbone,
        seed=0,
        settings=replace(settings, data=data),
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
    monkeypatch.setattr("transfer.frozen.linear_heads.train_and_score", None)
    again = evaluate(cell)
    assert "uses that of in100_linear@looc" in capsys.readouterr().err
    assert again.metrics == first.metrics
    corrupted = replace(cell, key="imagenet_c100_eval")
    assert set(evaluate(corrupted).metrics) >= {"all_top1", "all19_top1", "sev3plus_top1"}


@pytest.fixture
def trained(cell: Cell, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of the backbones whose classifiers were trained: instead, drawn from their weights."""
    names: list[str] = []

    def drawn(backbone: Backbone, images: Images, *rest: object) -> Predictions:
        folder = rest[3]
        assert isinstance(folder, Path)
        names.append(backbone.source)
        generator = torch.Generator().manual_seed(int(backbone.sha256[:8], 16))
        classes = len(images.class_names)
        weight = torch.randn(1, classes, backbone.feature_dim, generator=generator)
        kept = save_classifier(folder, Heads(weight, torch.zeros(1, classes)))
        scores, labels = torch.eye(classes), torch.arange(classes)
        return Predictions(scores, labels, {"weights": kept})

    monkeypatch.setattr("transfer.frozen.linear_heads.train_and_score", drawn)
    return names


def twin(cell: Cell) -> Cell:
    """Return a cell of another network with the same name."""
    form = cell.backbone.input
    name = cell.backbone.name
    other = random_backbone(arch="resnet18", stem="imagenet", seed=1, input=form, name=name)
    return replace(cell, backbone=other)


def test_two_backbones_of_one_name_and_folder_keep_their_own_classifiers(
    cell: Cell, trained: list[str]
) -> None:
    first = evaluate(cell)
    other = replace(
        twin(cell), settings=replace(cell.settings, results=cell.settings.results / "other")
    )
    second = evaluate(other)
    cell.path.unlink()
    again = evaluate(cell)
    assert len(trained) == 2
    assert again.metrics == first.metrics
    assert again.details["classifier_weights"] == first.details["classifier_weights"]
    assert again.details["classifier_weights"] != second.details["classifier_weights"]


def test_weights_of_a_training_that_left_no_record_are_not_used(
    cell: Cell, trained: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cell.needed is not None
    first = evaluate(cell)
    work = cell.needed.folders.work
    classifier_file(work, first.details["classifier_weights"]).unlink()
    save_classifier(work, Heads(torch.zeros(1, 100, 512), torch.zeros(1, 100)))
    cell.path.unlink()
    assert evaluate(cell).metrics == first.metrics
    told = capsys.readouterr().err
    assert "but its weights are gone: training it first" in told


def test_the_record_of_another_backbone_is_not_believed(
    cell: Cell, trained: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    evaluate(cell)
    assert evaluate(twin(cell)).backbone["sha256"] == twin(cell).backbone.sha256
    told = capsys.readouterr().err
    assert "but it has no record of this training: training it first" in told
    assert len(trained) == 2


def test_a_classifier_of_other_arithmetic_is_told(cell: Cell, trained: list[str]) -> None:
    first = evaluate(cell)
    assert first.details["classifier_features_in"] == "float32"
    assert not [line for line in first.departures if "features in" in line]
    assert cell.needed is not None
    lender = read_record(cell.needed.path)
    details = {**lender.details, "features_in": "bfloat16"}
    write_json_record(cell.needed.path, replace(lender, details=details))
    cell.path.unlink()
    second = evaluate(cell)
    assert len(trained) == 1
    assert second.details["classifier_features_in"] == "bfloat16"
    assert second.details["features_in"] == "float32"
    assert "classifier: trained on features in bfloat16" in second.departures


def test_a_training_that_leaves_no_weights_ends_the_search(
    cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    nothing = Predictions(torch.eye(8), torch.arange(8), {})
    monkeypatch.setattr("transfer.frozen.linear_heads.train_and_score", lambda *_: nothing)
    with pytest.raises(ClassifierError, match="its training has left no weights"):
        evaluate(cell)


def test_a_classifier_that_was_trained_before_the_lock_came_is_not_trained_again(
    cell: Cell, trained: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cell.needed is not None
    needed = cell.needed
    plain = wait_for_lock

    def another_was_faster(
        path: Path, option: str, note: Callable[[], None]
    ) -> AbstractContextManager[None]:
        evaluate(needed)
        return plain(path, option, note)

    monkeypatch.setattr("transfer.cells.request.wait_for_lock", another_was_faster)
    evaluate(cell)
    assert len(trained) == 1


@pytest.mark.slow
def test_a_classifier_that_another_process_trains_is_waited_for(
    cell: Cell, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert cell.needed is not None
    other = ExitStack()
    (cell.needed.folders.work).mkdir(parents=True)
    other.enter_context(lock_folder(cell.needed.folders.work))
    monkeypatch.setattr("time.sleep", lambda seconds: other.close())  # it ends in the meantime
    assert evaluate(cell).metrics
    told = capsys.readouterr().err
    assert told.index("waits for that of in100_linear@looc") < told.index("training it first")


def test_another_classifier_makes_a_record_stale(
    cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = classifier_hash(cell)
    longer = replace(cell, settings=replace(cell.settings, schedule="short"))
    assert classifier_hash(longer) != mine
    knn = replace(cell, key="in100_knn")
    assert classifier_hash(knn) == ""


@pytest.mark.parametrize("key", ["objectnet13_eval", "imagenet_c100_eval"])
def test_preparing_extracts_what_the_task_itself_looks_at_and_trains_no_classifier(
    cell: Cell, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = replace(cell, key=key)
    prepare([other])
    assert other.needed is not None
    assert not other.needed.folders.work.exists()
    monkeypatch.setattr("transfer.frozen.extraction.extract", None)  # all is there
    work = other.needed.folders.work
    name = save_classifier(work, Heads(torch.zeros(1, 1, 512), torch.zeros(1, 1)))
    folders = replace(other.folders, classifier=classifier_file(work, name))
    assert len(other.task.prepare(other.computing, folders).test.features)


def keys_of(rows: list[PlannedCell]) -> list[tuple[str, str]]:
    return [(row.cell.key, row.state) for row in rows]


def test_the_plan_counts_a_classifier_that_nobody_asked_for_once(
    cell: Cell, trained: list[str]
) -> None:
    cells = [cell, replace(cell, key="imagenet_c100_eval")]
    rows = with_classifiers([plan_cell(one) for one in cells])
    looc = "in100_linear@looc"
    assert keys_of(rows) == [(looc, "run"), (cells[0].key, "run"), (cells[1].key, "run")]
    assert rows[0].gpu_hours > 0
    assert rows[1].why == f"uses the classifier of {looc}"
    evaluate(cell)
    rows = with_classifiers([plan_cell(one) for one in cells])
    assert keys_of(rows) == [(cells[0].key, "cached"), (cells[1].key, "run")]


def test_the_plan_trains_again_where_the_weights_of_a_finished_record_are_gone(
    cell: Cell, trained: list[str]
) -> None:
    assert cell.needed is not None
    asked = replace(cell.needed, with_weights=False)
    name = evaluate(cell).details["classifier_weights"]
    cell.path.unlink()
    classifier_file(cell.needed.folders.work, name).unlink()
    assert plan_cell(asked).state == "cached"
    rows = with_classifiers([plan_cell(asked), plan_cell(cell)])
    assert keys_of(rows) == [(asked.key, "run"), (cell.key, "run")]
    assert run_cells(rows, {}) == []
    assert len(trained) == 2  # by the cell of its own, not by the one that uses it
    assert finished(cell.needed) is not None


def test_a_classifier_that_fails_is_tried_once_and_its_users_say_so(
    cell: Cell, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries: list[object] = []

    def diverges(*arguments: object) -> None:
        tries.append(arguments)
        raise ArithmeticError("the probe diverged")

    monkeypatch.setattr("transfer.frozen.linear_heads.train_and_score", diverges)
    cells = [cell, replace(cell, key="imagenet_c100_eval")]
    failed = run_cells(with_classifiers([plan_cell(one) for one in cells]), {})
    assert (len(failed), len(tries)) == (3, 1)
    assert cell.needed is not None
    assert "the probe diverged" in failure_path(cell.needed.path).read_text()
    for one in cells:
        reason = json.loads(failure_path(one.path).read_text())["reason"]
        expected = "classifier in100_linear@looc failed: the probe diverged"
        assert reason == f"ClassifierError: {expected}"


def test_cells_of_one_task_are_extracted_together_one_after_another(
    cell: Cell, trained: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    form = cell.backbone.input
    other = random_backbone(arch="resnet18", stem="imagenet", seed=1, input=form, name="other")
    cells = [cell, replace(cell, backbone=other)]
    assert run_cells(with_classifiers([plan_cell(one) for one in cells]), {}) == []
    assert capsys.readouterr().err.count("objectnet13 test for 2 backbones") > 0


def test_a_request_with_classifiers_still_knows_its_checkpoints(
    cell: Cell, checkpoint: Path, trained: list[str]
) -> None:
    settings = cell.settings
    request = RunAll(
        ckpt=(checkpoint,),
        random=True,
        data=settings.data,
        results=settings.results,
        runs=settings.runs,
        schedule="smoke",
        tasks="objectnet13_eval",
        plan=True,
    )
    assert [row.cell.backbone.name for row in plan(request)[0]] == [*["mine"] * 2, *["random"] * 2]
    needed = plan(request)[0][0].cell
    evaluate(replace(needed, backbone=replace(cell.backbone, name="mine")))
    rows, origins, _ = plan(request)
    assert [row.cell.backbone.name for row in rows] == ["mine", "random", "random"]
    assert not origins["mine"].random
    assert origins["random"].random
