"""Measured rates are found by the name of this machine's GPU, and damaged ones are refused."""

from pathlib import Path

import pytest

from pretrain.running.processes import assume_gpus
from transfer.frozen import pass_hours
from transfer.frozen.pass_hours import (
    ASSUMED,
    Rates,
    machine_file,
    rates_file,
    rates_of_this_machine,
    save_rates,
)

H200 = Rates(
    gpu="NVIDIA H200",
    measured="2026-11-22",
    commit="0123456789",
    features={"resnet50": {"bfloat16": 8000.0}},
    probe_crops=4000.0,
    trainings={"coco_det": {"float32": {"images": 16.0, "seconds": 0.5}}},
)


@pytest.fixture
def driver(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the file in which a driver would describe this machine's GPU; there is none."""
    file = tmp_path / "driver" / "0000:1b:00.0" / "information"
    file.parent.mkdir(parents=True)
    monkeypatch.setattr(pass_hours, "DRIVER", tmp_path / "driver")
    return file


def test_rates_are_found_by_the_name_that_the_driver_gives_or_that_was_measured_here(
    tmp_path: Path, driver: Path
) -> None:
    assert save_rates(tmp_path, H200) == tmp_path / "rates" / "nvidia-h200.json"
    with assume_gpus(0):  # a plan for other machines
        assert rates_of_this_machine(tmp_path) == ASSUMED
    with assume_gpus(1):
        assert rates_of_this_machine(tmp_path) == H200
        machine_file(tmp_path).unlink()
        for gpu, rates in (("NVIDIA H200", H200), ("NVIDIA A100-SXM4-80GB", ASSUMED)):
            driver.write_text(f"Model: \t\t {gpu}\nIRQ:   \t\t 130\n")
            assert rates_of_this_machine(tmp_path) == rates


def test_a_damaged_file_is_named_with_the_remedy(tmp_path: Path, driver: Path) -> None:
    save_rates(tmp_path, H200)
    for content in ("torn", "[]", '{"unknown": 1}'):
        rates_file(tmp_path, H200.gpu).write_text(content)
        with assume_gpus(1), pytest.raises(ValueError, match=r"nvidia-h200\.json.*make gpu-check"):
            rates_of_this_machine(tmp_path)


def test_half_precision_takes_the_time_of_bfloat16() -> None:
    both = Rates(trainings={"a": {"bfloat16": {"images": 8.0, "seconds": 2.0}}})
    assert both.trained_per_second("a", "float16") == 4.0
    assert both.trained_per_second("a", "float32") == both.trained_per_second("b", "float32") == 0
