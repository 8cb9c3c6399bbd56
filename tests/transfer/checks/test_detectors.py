"""A detector on a device passes where it computes the same, and fails with a fault of one loss."""

from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from transfer.checks import detectors
from transfer.checks.comparison import Differences
from transfer.checks.detectors import compare, large_samples, share_found_again
from transfer.checks.fixed_detector import Answer
from transfer.checks.report import CheckFailedError, Facts, NotCheckedError, Place
from transfer.detection.recipe import COCO_FPN, COCO_FPN_KEYPOINTS
from transfer.detection.sample import ResizedDetections

SMALL = Place(device="cpu", folder=Path())
BOXES = torch.tensor([[1.0, 2.0, 30.0, 40.0], [5.0, 6.0, 50.0, 60.0]])


def answer(**changes: object) -> Answer:
    """Return an answer of one loss, one gradient and two detections."""
    found = ResizedDetections(
        boxes=BOXES, scores=torch.tensor([0.9, 0.8]), classes=torch.tensor([0, 1])
    )
    whole = Answer(
        losses={"loss_cls": torch.tensor(2.0)},
        gradients={"weight": torch.tensor([1.0, -3.0])},
        found=[found],
    )
    return replace(whole, **changes)  # type: ignore[arg-type]


def differences(found: Answer) -> Facts:
    noted = Differences()
    compare(noted, "float64", found, answer())
    return noted.checked()


def moved(**changes: Tensor) -> Answer:
    """Return the answer with changed detections."""
    return answer(found=[replace(answer().found[0], **changes)])


def test_equal_answers_pass() -> None:
    facts = differences(answer())
    assert facts["float64 losses"] == facts["float64 boxes"] == 0.0


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (answer(losses={"loss_cls": torch.tensor(2.001)}), "losses"),
        (answer(losses={"loss_cls": torch.tensor(torch.nan)}), "losses nan"),
        (answer(gradients={"weight": torch.tensor([1.1, -3.0])}), "gradients"),
        (answer(gradients={"weight": torch.tensor([torch.inf, -3.0])}), "gradients inf"),
        (moved(boxes=BOXES + 0.01), "boxes"),
        (moved(scores=torch.tensor([0.9, 0.81])), "scores"),
        (moved(classes=torch.tensor([1, 0])), "classes"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_fault_in_any_part_of_an_answer_fails(found: Answer, reason: str) -> None:
    with pytest.raises(CheckFailedError, match=reason):
        differences(found)


def test_a_missing_gradient_is_an_error() -> None:
    with pytest.raises(ValueError, match="expected"):
        differences(answer(gradients={}))


def test_detections_are_found_again_in_any_order_but_not_as_another_class() -> None:
    (expected,) = answer().found
    turned = replace(
        expected, boxes=BOXES.flip(0), scores=expected.scores, classes=torch.tensor([1, 0])
    )
    assert share_found_again([turned], [expected]) == 1.0
    swapped = replace(expected, classes=torch.tensor([1, 0]))
    assert share_found_again([swapped], [expected]) == 0.0
    assert share_found_again([replace(expected, boxes=BOXES + 1)], [expected]) == 0.0


@pytest.mark.slow
@pytest.mark.parametrize("factor", [1.0, 1.001])
def test_a_detector_whose_device_weighs_a_loss_otherwise_fails(
    monkeypatch: pytest.MonkeyPatch, factor: float
) -> None:
    placed: list[nn.Module] = []

    def place(network: nn.Module, device: torch.device) -> None:
        placed.append(network)
        if len(placed) == 2:  # the first is the CPU's
            scale_outputs(network.rpn, factor)  # type: ignore[arg-type]

    monkeypatch.setattr(detectors, "place_network", place)
    expected = (
        nullcontext() if factor == 1.0 else pytest.raises(CheckFailedError, match="64 losses")
    )
    with expected:
        detectors.check_answers(COCO_FPN, "torchvision", SMALL)


def scale_outputs(module: nn.Module, factor: float) -> None:
    def scaled(
        module: nn.Module, inputs: object, outputs: tuple[object, dict[str, Tensor]]
    ) -> tuple[object, dict[str, Tensor]]:
        return outputs[0], {name: factor * loss for name, loss in outputs[1].items()}

    module.register_forward_hook(scaled)


def test_an_engine_that_is_not_installed_is_skipped_aloud(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(detectors, "is_available", lambda: False)
    with pytest.raises(NotCheckedError, match="detectron2 is not installed"):
        detectors.check_answers(COCO_FPN, "detectron2", SMALL)


def test_timed_images_have_the_size_of_the_recipe_and_objects_within() -> None:
    (sample,) = large_samples(COCO_FPN_KEYPOINTS, 1)
    assert sample.image.shape == (3, 720, 960)
    assert sample.boxes.shape == (7, 4)
    assert bool((sample.boxes[:, 2:] > sample.boxes[:, :2]).all())
    assert bool((sample.boxes[:, 2:] <= torch.tensor([960, 720])).all())
    assert sample.keypoints is not None
    assert sample.polygons is not None
