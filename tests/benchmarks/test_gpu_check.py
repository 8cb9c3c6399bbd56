"""The page of GPU rates, what counts as a failed measurement, and the rates that plans use."""

import json
from pathlib import Path

import pytest

from benchmarks.gpu import evaluation
from benchmarks.gpu_check import Facts, add_rates, complaint, main, rates_of, render
from transfer.frozen.pass_hours import rates_file


def rows(page: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines()]


def test_everything_but_steps_is_measured_on_a_cpu(tmp_path: Path) -> None:
    words = ["--device", "cpu", "--runs", str(tmp_path / "runs"), "--results", str(tmp_path)]
    assert main([*words, "--only", "probe", "classifier"]) == 0
    page = (tmp_path / "runs" / "gpu_check.md").read_text()
    names = {row[0] for row in rows(page) if len(row) == 3}
    assert {"linear probe", "fine-tuning of classifier"} <= names
    assert not (tmp_path / "gpu_check.md").exists()  # a CPU's page is not a result


@pytest.mark.slow
def test_everything_is_measured_on_a_cpu(tmp_path: Path) -> None:
    assert main(["--device", "cpu", "--runs", str(tmp_path), "--results", str(tmp_path)]) == 0
    assert "## Failed" not in (tmp_path / "gpu_check.md").read_text()


def test_other_measurements_go_on_after_a_failed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> Facts:
        raise RuntimeError("no kernel")

    monkeypatch.setitem(evaluation.TRAININGS, "classifier", fail)
    words = ["--device", "cpu", "--runs", str(tmp_path), "--only", "classifier", "resnet18 in"]
    assert main(words) == 1
    page = (tmp_path / "gpu_check.md").read_text()
    assert "- fine-tuning of classifier: RuntimeError: no kernel" in page
    assert ["features of resnet18 in float32", "images/s"] in [row[:2] for row in rows(page)]


@pytest.mark.parametrize("words", [["--device", "cuda"], ["--device", "cpu", "--only", "mocho"]])
def test_a_wrong_request_is_refused(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert main(words) == 2


def test_measured_facts_become_the_rates_of_plans() -> None:
    facts = {"seconds per iteration in float32": 1.5, "images per pass in float32": 16.0}
    answers: dict[str, Facts] = {
        "features of resnet50 in float32": {"images/s": 3000.0},
        "linear probe": {"crops/s": 4500.0, "precision": "bfloat16"},
        "fine-tuning of coco_det": facts,
        "fine-tuning of classifier": {"failed": "out of memory"},
        "step of moco": {"images/s": 1.0},
    }
    rates = rates_of("NVIDIA H200", answers)
    assert rates is not None
    assert rates.gpu == "NVIDIA H200"
    assert rates.features == {"resnet50": {"float32": 3000.0}}
    assert rates.probe_crops == 4500.0
    assert rates.trainings == {"coco_det": {"float32": {"images": 16.0, "seconds": 1.5}}}
    assert rates_of("", {"step of moco": {"images/s": 1.0}}) is None


def test_the_page_begins_with_each_method() -> None:
    facts: Facts = {
        "images/s": 2000.0,
        "hours of the recipe on this device alone": 36.0,
        "workers needed": 2.5,
    }
    page = render("a GPU", {"step of moco": facts}, ["linear probe"])
    assert ["moco", "2000", "2.5", "36"] in rows(page)
    assert "## Not run\n\nlinear probe" in page


def test_a_step_that_needs_less_memory_than_estimated_has_failed() -> None:
    facts: Facts = {"peak memory GB": 9.0, "estimated memory GB": 9.5}
    assert "memory 9 GB, less than the estimate of 9.5" in complaint(facts)
    assert complaint({**facts, "peak memory GB": 9.6}) == ""


def test_a_part_that_is_measured_later_leaves_the_other_rates(tmp_path: Path) -> None:
    for answers in ({"linear probe": {"crops/s": 4.0}}, {"features of a in b": {"images/s": 2.0}}):
        add_rates(tmp_path, rates_of("GPU", answers))
    rates = json.loads(rates_file(tmp_path, "GPU").read_text())
    assert rates["probe_crops"] == 4.0
    assert rates["features"] == {"a": {"b": 2.0}}


def test_a_missing_opencv_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("benchmarks.gpu_check.find_spec", lambda name: None)
    assert main(["--device", "cpu"]) == 2
    assert "pip install opencv-python-headless" in capsys.readouterr().err
