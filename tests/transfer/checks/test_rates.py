"""Measured facts of the checks become the rates that plans read."""

from pathlib import Path

from transfer.checks.catalog import all_checks
from transfer.checks.rates import rates_of, write_rates
from transfer.checks.report import Facts
from transfer.running.measured_rates import read_rates
from transfer.tasks.detection import MEASURED_AS

TRAINING: Facts = {
    "seconds per iteration of 2 images in float32": 0.25,
    "images per pass of 2 images in float32": 2.0,
    "seconds per iteration in float32": 1.5,
    "images per pass in float32": 16.0,
    "seconds per iteration in bfloat16": 1.0,
    "images per pass in bfloat16": 8.0,
}
MEASURED: dict[str, Facts] = {
    "rate of features of resnet50 in bfloat16": {"images/s": 9000.0, "pixels": "generated"},
    "rate of features of resnet50 in float32": {"images/s": 3000.0},
    "rate of a linear probe": {"crops/s": 4500.0},
    "rate of coco_det": TRAINING,
    "coco_det against the CPU": {"float64 losses": 0.0},
}


def test_rates_are_taken_from_the_checks_that_measure(tmp_path: Path) -> None:
    path = write_rates(tmp_path, "NVIDIA H200", MEASURED, date="2026-11-22", commit="abc")
    assert path is not None
    rates = read_rates(path)
    assert (rates.gpu, rates.measured, rates.commit) == ("NVIDIA H200", "2026-11-22", "abc")
    assert rates.features == {"resnet50": {"bfloat16": 9000.0, "float32": 3000.0}}
    assert rates.probe_crops == 4500.0
    assert rates.trainings["coco_det"]["float32"] == {"images": 16.0, "seconds": 1.5}
    assert rates.trained_per_second("coco_det", "bfloat16") == 8.0


def test_nothing_measured_writes_nothing(tmp_path: Path) -> None:
    facts = {"coco_det against the CPU": MEASURED["coco_det against the CPU"]}
    assert write_rates(tmp_path, "NVIDIA H200", facts, date="2026-11-22", commit="") is None
    assert not list(tmp_path.iterdir())


def test_every_detector_that_plans_ask_for_is_measured() -> None:
    names = {check.name for check in all_checks() if check.measures}
    asked = {*MEASURED_AS.values(), "voc12_seg_fcn", "classifier", "a linear probe"}
    assert {f"rate of {name}" for name in asked} <= names


def test_a_training_that_was_not_measured_has_no_rate() -> None:
    rates = rates_of("g", {"rate of voc12_seg_fcn": {}}, date="", commit="")
    assert rates.trainings == {}
