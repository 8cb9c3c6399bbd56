"""Detections in a file: what comes back, and when the test pass is repeated."""

from pathlib import Path

import torch

from pretrain.running.processes import Process, this_process
from transfer.detection.results import Detections
from transfer.detection.train import kept_detections, read_detections, write_detections

ENTRY = Detections(
    height=4,
    width=6,
    boxes=torch.rand(2, 4),
    scores=torch.tensor([0.9, 0.1]),
    classes=torch.tensor([3, 1]),
    masks=["04", "1Z"],
    keypoints=torch.rand(2, 17, 3),
)


def test_detections_come_back_bit_for_bit_and_of_a_torn_file_nothing(tmp_path: Path) -> None:
    file = tmp_path / "d.pt.gz"
    write_detections(file, [ENTRY])
    kept = read_detections(file)
    assert kept is not None
    assert torch.equal(kept[0].boxes, ENTRY.boxes)
    assert torch.equal(kept[0].keypoints, ENTRY.keypoints)  # type: ignore[arg-type]
    assert (kept[0].masks, kept[0].width) == (ENTRY.masks, 6)
    content = file.read_bytes()
    for cut in (0, 10, 200):
        file.write_bytes(content[:cut])
        assert read_detections(file) is None


def test_the_test_pass_runs_once_for_as_many_images(tmp_path: Path) -> None:
    passes = []

    def detect() -> list[Detections]:
        passes.append(1)
        return [ENTRY]

    process: Process = this_process()
    for _ in range(3):
        assert len(kept_detections(tmp_path / "d.pt.gz", 1, detect, process)) == 1
    assert len(passes) == 1
    kept_detections(tmp_path / "d.pt.gz", 2, detect, process)
    assert len(passes) == 2
