"""python -m benchmarks.export writes what Hugging Face's own reader reads."""

from pathlib import Path

import pytest
import yaml

from benchmarks.export import TASK_TYPES, main
from tests.synthetic_records import failure, record
from transfer.tasks import TASKS, reading_of


def test_every_task_is_exported_but_figures() -> None:
    missing = {
        task.heading
        for key, task in TASKS.items()
        if not {reading_of(key)[0], task.heading} & TASK_TYPES.keys()
    }
    assert missing == {"Figures"}


def test_model_card_is_read_by_hugging_face(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    card = pytest.importorskip("huggingface_hub.repocard_data")
    knn = {"task": "cifar10_knn", "protocol": "uniclr-2022/1", "request": {"task": "cifar10_knn"}}
    for seed, top1 in enumerate((70.0, 71.0)):
        record(tmp_path, top1, seed=seed, schedule="short", departures=["crop_px"], **knn)
    record(tmp_path, 40.0, task="coco_det", protocol="jcl-2020/1", request={"task": "coco_det"})
    record(tmp_path, 90.0, name="other", sha256="b" * 64)
    assert main(["--results", str(tmp_path), "--name", "mine"]) == 0
    content = yaml.safe_load(capsys.readouterr().out)
    name, results = card.model_index_to_eval_results(content["model-index"])
    assert name == "mine"
    first, second = sorted(results, key=lambda result: result.dataset_type)
    fields = first.task_type, first.dataset_type, first.metric_type, first.metric_value
    assert fields == ("image-classification", "cifar10", "accuracy", 70.5)
    assert first.metric_args["schedule"] == "short"
    assert first.metric_args["seeds"] == [0, 1]
    assert first.metric_args["deviations"] == ["crop_px"]
    assert (second.task_type, second.metric_value) == ("object-detection", 40.0)


def test_incomplete_data_is_no_full_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(tmp_path, 70.0, tolerated=3)
    assert main(["--results", str(tmp_path), "--name", "mine"]) == 0
    (index,) = yaml.safe_load(capsys.readouterr().out)["model-index"]
    (metric,) = index["results"][0]["metrics"]
    assert metric["args"]["data"] == "incomplete data"
    assert "3" in " ".join(metric["args"]["deviations"])


def test_what_is_left_out_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key = "cifar10_view_statistics"
    record(tmp_path, 90.0, task=key, protocol="jcl-2020/1", request={"task": key})
    failure(tmp_path, "voc07_svm", "out of memory")
    assert main(["--results", str(tmp_path), "--name", "mine"]) == 0
    output = capsys.readouterr()
    assert yaml.safe_load(output.out) == {"model-index": [{"name": "mine", "results": []}]}
    assert f"left out: {key} has no task there" in output.err
    assert "left out: voc07_svm failed" in output.err


def test_task_of_an_absent_plugin_is_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(tmp_path, 90.0, request={"task": "voc07_svm"})
    key = "voc07_svm@plugin"
    record(tmp_path, 80.0, protocol="plugin/1", request={"task": key}, hash="h", paper_hash="h")
    assert main(["--results", str(tmp_path), "--name", "mine"]) == 0
    output = capsys.readouterr()
    (index,) = yaml.safe_load(output.out)["model-index"]
    assert [metric["value"] for result in index["results"] for metric in result["metrics"]] == [90]
    assert f"left out: {key} is not a task of this installation" in output.err


def test_unknown_name_ends_with_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    record(tmp_path, 90.0)
    assert main(["--results", str(tmp_path), "--name", "min"]) == 2
    error = capsys.readouterr().err
    assert "nearest: mine" in error
    assert f"--results {tmp_path}" in error
