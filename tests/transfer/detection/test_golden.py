"""The torchvision engine gives detectron2's stored answers, on machines without detectron2 too."""

import json

import pytest

from tests.transfer.detection.golden import GOLDEN, path_of, summary
from tests.transfer.detection.parity import NUM_CLASSES, Case, answer, fill
from tests.transfer.detection.small_scenes import small_samples
from transfer.detection.torchvision_engine import build_detector


@pytest.mark.parametrize(("name", "case"), GOLDEN.items(), ids=GOLDEN)
def test_the_answer_is_that_of_detectron2(name: str, case: Case) -> None:
    detector = build_detector(case.recipe, arch=case.arch, num_classes=NUM_CLASSES, norm="BN")
    fill(detector.network.state_dict())
    found = answer(detector, small_samples(2, NUM_CLASSES))
    ours, theirs = summary(found, found.gradients), json.loads(path_of(name).read_text())
    # of another processor's convolutions: they were seen to differ up to a third as much
    assert ours["losses"] == pytest.approx(theirs["losses"], rel=1e-4)
    assert ours["gradient_norms"] == pytest.approx(theirs["gradient_norms"], rel=2e-2)
    for mine, other in zip(ours["found"], theirs["found"], strict=True):
        assert (mine["count"], mine["classes"]) == (other["count"], other["classes"])
        for box, other_box in zip(mine["boxes"], other["boxes"], strict=True):
            assert box == pytest.approx(other_box, abs=1e-2)
        assert mine["scores"] == pytest.approx(other["scores"], abs=1e-4)
        assert mine["masks"] == pytest.approx(other["masks"], abs=1e-4)
        for places, other_places in zip(mine["keypoints"], other["keypoints"], strict=True):
            assert places == pytest.approx(other_places, abs=1e-2)
