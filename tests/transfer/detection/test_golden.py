"""The torchvision engine gives detectron2's stored answers, on machines without detectron2 too.

Convolutions in float64: in float32 their last bits differ among processors, and behind layers of
batch norm the gradients' third digit does. Boxes and scores are float32. Their roundings decide
nothing: between what is kept and what is dropped lie 2e-5 or more, of a logit or an IoU.
"""

import json

import numpy as np
import pytest

from tests.transfer.detection.fixed_detector import answer, fill, in_double
from tests.transfer.detection.golden import GOLDEN, path_of, summary
from tests.transfer.detection.parity import BOX_PX, GRADIENT, LOSS, NUM_CLASSES, SCORE
from tests.transfer.detection.small_samples import small_samples
from transfer.detection.torchvision_engine.network import RCNN

ERRORS = {"boxes": BOX_PX, "scores": SCORE, "masks": SCORE, "keypoints": BOX_PX}


def test_the_answer_is_that_of_detectron2(subtests: pytest.Subtests) -> None:
    for name, (arch, recipe) in GOLDEN.items():
        with subtests.test(name=name):
            detector = RCNN(recipe, arch=arch, num_classes=NUM_CLASSES, norm="BN")
            fill(detector.state_dict())
            in_double(detector)
            result = answer(detector, small_samples(2, NUM_CLASSES))
            ours, theirs = summary(result, result.gradients), json.loads(path_of(name).read_text())
            assert ours["losses"] == pytest.approx(theirs["losses"], rel=LOSS)
            assert ours["gradient_norms"] == pytest.approx(theirs["gradient_norms"], rel=GRADIENT)
            for mine, second in zip(ours["found"], theirs["found"], strict=True):
                assert (mine["count"], mine["classes"]) == (second["count"], second["classes"])
                for part, atol in ERRORS.items():
                    np.testing.assert_allclose(mine[part], second[part], rtol=0, atol=atol)
