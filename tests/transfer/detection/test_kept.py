"""Detections in a file: what comes back, and when the test pass is repeated."""

from pathlib import Path

import torch

from pretrain.running.processes import this_process
from transfer.detection.results import Detections
from transfer.detection.train import kept_detections

ENTRY = Detections(
    height=4,
    width=6,
    boxes=torch.rand(2, 4),
    scores=torch.tensor([0.9, 0.1]),
    classes=torch.tensor([3, 1]),
    masks=["04", "1Z"],
    keypoints=torch.rand(2, 17, 3),
)


def test_detections_come_back_bit_for_bit_and_the_test_pass_runs_once(tmp_path: Path) -> None:
    passes = []

    def detect() -> list[Detections]:
        passes.append(1)
        return [ENTRY]

    for _ in range(3):
        (kept,) = kept_detections(tmp_path / "d.pt.gz", detect, this_process())
        assert torch.equal(kept.boxes, ENTRY.boxes)
        assert torch.equal(kept.keypoints, ENTRY.keypoints)  # type: ignore[arg-type]
        assert (kept.masks, kept.width) == (ENTRY.masks, 6)
    assert len(passes) == 1
