"""Measured seconds are stored unchanged."""

from pathlib import Path

import pytest

from transfer.encoders.encoder import Encoder
from transfer.hours import Measured, gpu_hours, measured_seconds, save_seconds


def test_measured_seconds_are_stored(tmp_path: Path) -> None:
    assert measured_seconds(tmp_path) == Measured()
    measured = Measured(gpu="NVIDIA H200", date="2026-11-22", seconds={"crop": 1 / 4000})
    save_seconds(tmp_path, measured)
    assert measured_seconds(tmp_path) == measured


def test_float16_takes_the_time_of_bfloat16(small_backbone: Encoder) -> None:
    measured = Measured(seconds={"coco_det bfloat16": 3600.0})
    hours = [
        gpu_hours({f"coco_det {precision}": 1.0}, small_backbone, measured)
        for precision in ("bfloat16", "float16")
    ]
    assert hours[0] == hours[1] == pytest.approx(0.44)
