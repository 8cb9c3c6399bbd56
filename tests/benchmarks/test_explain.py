"""Everything behind a number, in text and in JSON."""

import json
import shutil
from pathlib import Path

import pytest

from benchmarks.explain import main
from benchmarks.results.published import transfer_tasks
from tests.benchmarks.report.complete_records import complete
from tests.synthetic_records import record

ROOT = Path(__file__).parents[2]
RECORDS = ROOT / "results" / "reference" / "records"
KEPT = Path(__file__).with_name("kept")
"""Records of detectors, which the results do not hold."""
OWN = ["--results", str(ROOT / "results" / "reference"), "--name", "cifar10-vicreg"]


def test_a_number_stands_beside_its_published_counterpart(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    complete(tmp_path, "mine", transfer_tasks()[0])
    (path,) = tmp_path.rglob("*.json")
    assert main([str(path)]) == 0
    out = capsys.readouterr().out
    assert "LORAC, Table II: LORAC, Aircraft" in out
    assert "47.8, ours 47.50 (-0.30): inconclusive, 95 % interval [" in out


def test_record_is_found_by_name_and_task(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main([*OWN, "--task", "cifar10_linear", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert " ".join(result) == "Number Published Comparable Protocol Checkpoint Data Computed Again"
    assert result["Protocol"]["epochs"] == "2   (paper: 100)"
    assert result["Published"] == {"none": "0.02-length schedule, JPEG-coded subset of the data"}
    assert result["Checkpoint"]["made_by.recipe"] == "vicreg/cifar10-cpu"
    with_these = result["Comparable"]["with"]
    assert with_these.startswith("every record of cifar10_linear under uniclr-2022/1 with the same")
    assert "(crop_px, resize_px, std); 0.02-length schedule; on the same images (" in with_these
    command = result["Again"]["command"]
    assert command.startswith("python -m transfer cifar10_linear --ckpt runs/vicreg/backbone.pt ")
    assert "--schedule 0.02" in command
    assert result["Again"]["cached"].startswith("yes")


def test_a_snapshot_is_found_by_its_name(capsys: pytest.CaptureFixture[str]) -> None:
    args = ["--results", str(ROOT / "results" / "reference"), "--name", "SimCLR@epoch0001"]
    assert main([*args, "--task", "cifar10_knn", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["Checkpoint"]["name"] == "SimCLR@epoch0001"


def test_a_number_has_the_name_of_its_variant(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    key = "voc07_svm@11point"
    record(tmp_path, 60.0, protocol="co2-2021-11point/1", request={"task": key})
    (path,) = tmp_path.rglob("*.json")
    assert main([str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["Number"] == {f"{key} mAP": "60.00"}


def test_copied_records_are_not_used(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    complete(tmp_path, "mine", transfer_tasks()[0])
    (path,) = tmp_path.rglob("*.json")
    shutil.copy(path, path.with_name(f"{path.stem} (1).json"))
    args = ["--results", str(tmp_path), "--name", "mine", "--task"]
    assert main([*args, transfer_tasks()[0], "--json"]) == 0
    assert "Number" in json.loads(capsys.readouterr().out)  # one, not a list
    assert main([*args, "cifar10_knn"]) == 2
    assert "(1).json: not used (copied" in capsys.readouterr().err


def test_copied_test_images_are_among_the_data(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record(tmp_path, 60.0, details={"copied_test_images_percent": {"set": 0.5}})
    (path,) = tmp_path.rglob("*.json")
    assert main([str(path), "--json"]) == 0
    data = json.loads(capsys.readouterr().out)["Data"]
    assert data["copied_test_images_percent.set"] == "0.5"
    assert data["set.fingerprint"] == "f"


def test_a_row_without_a_number_of_the_task_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    origin = {"method": "instdisc", "recipe": "instdisc/in1k-r50", "epochs": 200.0, "data": "in1k"}
    record(tmp_path, 60.0, task="voc12_seg_fcn", made_by=origin)
    (path,) = tmp_path.rglob("*.json")
    assert main([str(path), "--json"]) == 0
    published = json.loads(capsys.readouterr().out)["Published"]
    assert published["CO2, Table 3"] == "no number to compare"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--name", "cifar10-vicrg", "--task", "cifar10_knn"], "nearest: cifar10-vicreg"),
        (["--name", "cifar10-vicreg", "--task", "cifar10_kn"], "nearest: cifar10_knn"),
        ([], "pass the file of a record, or both options"),
        (["nowhere.json"], "nowhere.json"),
        ([str(ROOT / "pyproject.toml")], "not a usable record"),
        ([str(ROOT / "pyproject.toml"), "--task", "cifar10_knn"], "pass either the file"),
    ],
)
def test_what_names_no_record_is_refused_with_advice(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*words, "--results", str(ROOT / "results" / "reference")]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert message in error


def test_every_record_of_the_suite_can_be_explained(
    capsys: pytest.CaptureFixture[str],
) -> None:
    path = KEPT / "coco_det_random.json"
    assert main([str(path)]) == 0
    out = capsys.readouterr().out
    command_line = next(line for line in out.splitlines() if line.startswith("  command  "))
    assert main([str(path), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["Protocol"]["recipe.iterations"] == "600   (paper: 90000)"
    command = result["Again"]["command"]
    assert command_line.removeprefix("  command  ").strip() == command
    for path in RECORDS.rglob("*.json"):
        assert main([str(path)]) == 0, path
        command = capsys.readouterr().out.partition("  command ")[2]
        assert command.lstrip().startswith("python "), path
