"""Measured seconds are stored unchanged; a damaged file is refused."""

from pathlib import Path

import pytest

from transfer.encoders.encoder import Encoder
from transfer.hours import FILE, Measured, gpu_hours, measured_seconds, save_seconds


def test_measured_seconds_are_stored(tmp_path: Path) -> None:
    assert measured_seconds(tmp_path) == Measured()
    measured = Measured(gpu="NVIDIA H200", date="2026-11-22", seconds={"crop": 1 / 4000})
    save_seconds(tmp_path, measured)
    assert measured_seconds(tmp_path) == measured


@pytest.mark.parametrize("content", ["torn", "[]", '{"unknown": 1}'])
def test_a_damaged_file_is_named_with_the_remedy(tmp_path: Path, content: str) -> None:
    (tmp_path / FILE).write_text(content)
    with pytest.raises(ValueError, match=r"seconds\.json.*make gpu-check"):
        measured_seconds(tmp_path)


def test_float16_takes_the_time_of_bfloat16(small_backbone: Encoder) -> None:
    measured = Measured(seconds={"coco_det bfloat16": 3600.0})
    hours = [
        gpu_hours({f"coco_det {precision}": 1.0}, small_backbone, measured)
        for precision in ("bfloat16", "float16")
    ]
    assert hours[0] == hours[1] == pytest.approx(0.44)
