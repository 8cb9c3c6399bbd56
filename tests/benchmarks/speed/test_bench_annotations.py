"""The drawn annotations are whole, and both ways of opening them are printed with their ratio."""

from pathlib import Path

import pytest

from benchmarks.speed import bench_annotations
from transfer.datasets.catalog import open_scenes


def test_the_drawn_file_is_read_without_a_fault(tmp_path: Path) -> None:
    file = tmp_path / "coco" / "annotations" / "instances_train2017.json"
    bench_annotations.write_annotations(file, 40)
    scenes = open_scenes("coco17", tmp_path, "trainval")
    assert len(scenes) == 40
    assert len(scenes.class_names) == 80
    assert scenes.objects_per_class().sum() + len(scenes.faults) == 291
    # the size of COCO's: 470 MB for 118,287 images
    assert file.stat().st_size / 40 == pytest.approx(470e6 / 118_287, rel=0.2)


def test_both_ways_are_printed_with_their_ratio(capsys: pytest.CaptureFixture[str]) -> None:
    assert bench_annotations.main(["--images", "20", "--parallel", "2"]) == 0
    lines = capsys.readouterr().out.splitlines()
    ways = ("parsed by each", "parsed by one, mapped by all", "mapped by all")
    assert [line for way, line in zip(ways, lines[1:4], strict=True) if line.startswith(way)]
    assert all("times as fast" in line for line in lines[1:4])
