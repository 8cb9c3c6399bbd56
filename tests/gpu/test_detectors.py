"""All detectors on the device against the CPU."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from benchmarks.gpu.evaluation import DETECTORS, new_detector
from tests.gpu.findings import (
    Findings,
    norm_difference,
    one_pass,
    roundings,
    worst_relative_difference,
)
from tests.gpu.started import Workspace
from tests.transfer.detection.fixed_detector import (
    Answer,
    answer,
    everything_sampled,
    fill,
    in_double,
)
from tests.transfer.detection.small_samples import small_samples
from transfer.detection.detector import ResizedDetections
from transfer.detection.engines import EngineName, build_detector, is_available
from transfer.detection.recipe import DetectorRecipe
from transfer.finetuning.loop import move_to_device
from transfer.finetuning.schedule import Precision

ENGINES: tuple[EngineName, ...] = ("torchvision", "detectron2")
NUM_CLASSES = 3
EPS = torch.finfo(torch.float32).eps
ULPS = 8
"""Units in the last place between devices' exponentials and quotients.

They move boxes, which are float32 also where convolutions are float64, by as many units of 128 px.
RoIAlign of moved boxes moves everything after it.
"""
BOX_PX = 4 * ULPS * 128 * EPS
"""Difference of boxes in px.

Proposals are decoded from anchors, and detections from proposals.
"""
LOSS = SCORE = 16 * ULPS * EPS
"""Relative difference of a loss; also difference of scores and mask probabilities.

Scores and probabilities are at most 1. A box that moves by BOX_PX / 4 on a map of stride 4 moves
its features by up to 8 * ULPS * EPS.
"""
GRADIENT = 0.01
"""Difference of all gradients in units of their norm.

A unit near zero may be on or off after a moved box, which changes its gradient completely.
"""
SMALL_BATCH = 4
"""Factor by which batch norm over two small images amplifies roundings."""
LOW_PRECISION: dict[Precision, float] = {"bfloat16": 0.05, "float16": 0.02}
"""Relative difference of the summed losses from float32, before the first step.

The logits are small then, so that their roundings matter little. Which proposals are kept changes.
"""


@pytest.fixture(params=[pytest.param(engine, id=engine) for engine in ENGINES])
def engine(request: pytest.FixtureRequest) -> EngineName:
    """The engines that are installed."""
    name: EngineName = request.param
    if name == "detectron2" and not is_available():
        pytest.skip("detectron2 is not installed")
    return name


@pytest.mark.parametrize("key", DETECTORS)
def test_a_detector(key: str, engine: EngineName, workspace: Workspace, findings: Findings) -> None:
    """Losses, gradients and detections on the device equal the CPU's.

    In float64 no rounding decides which proposals are kept, so all must agree. In float32 the
    losses are compared, and the detections with the tolerance that a rounding may keep or drop
    some.
    """
    recipe = DETECTORS[key]
    expected = fixed_answer(recipe, engine, torch.device("cpu"), double=True)
    compare(findings, fixed_answer(recipe, engine, workspace.device, double=True), expected)
    rounded = fixed_answer(recipe, engine, workspace.device, double=False)
    bound = SMALL_BATCH * roundings(torch.float32)
    worst = worst_relative_difference(rounded.losses, expected.losses)
    findings.add("float32 losses", worst, bound)
    share = share_found_again(rounded.found, expected.found)
    findings.add("float32 detections not found again", 1 - share, 0.1)


@pytest.mark.parametrize("key", DETECTORS)
def test_a_detector_in_low_precision(
    key: str, engine: EngineName, workspace: Workspace, findings: Findings
) -> None:
    """First losses under autocast are close to float32, and gradients are finite.

    Roundings decide which proposals are kept, so the losses are only close.
    """
    recipe = DETECTORS[key]
    expected = first_pass(recipe, engine, torch.device("cpu"), "float32")
    for precision, bound in LOW_PRECISION.items():
        if precision == "float16" and not workspace.on_gpu:
            continue  # trainings on a CPU refuse it
        result = first_pass(recipe, engine, workspace.device, precision)
        findings.add(f"{precision} losses", abs(result[0] / expected[0] - 1), bound)
        findings.require(f"{precision} gradients", result[1], "not finite")


def compare(findings: Findings, actual: Answer, expected: Answer) -> None:
    """Note differences of two float64 results, which only box roundings may cause."""
    findings.add("losses", worst_relative_difference(actual.losses, expected.losses), LOSS)
    findings.add("gradients", norm_difference(actual.gradients, expected.gradients), GRADIENT)
    pairs = list(zip(actual.found, expected.found, strict=True))
    same = all(torch.equal(item.classes.cpu(), second.classes) for item, second in pairs)
    findings.require("classes of detections", same, "differ from the CPU's")
    if not same:
        return
    bounds = {"boxes": BOX_PX, "scores": SCORE, "masks": SCORE, "keypoints": BOX_PX}
    for kind, bound in bounds.items():
        worst = max(largest(getattr(item, kind), getattr(second, kind)) for item, second in pairs)
        findings.add(kind, worst, bound)


def largest(first: Tensor | None, second: Tensor | None) -> float:
    """Return the largest difference of two tensors of one shape.

    0 if both are empty.
    """
    if first is None or second is None or not first.numel():
        return 0.0
    return float((first.cpu().double() - second.cpu().double()).abs().max())


def share_found_again(
    detections: Sequence[ResizedDetections], expected: Sequence[ResizedDetections]
) -> float:
    """Return the fraction of expected detections matched within 0.1 px.

    The class must agree, too.
    """
    again, count = 0, 0
    for ours, theirs in zip(detections, expected, strict=True):
        distances = torch.cdist(theirs.boxes.cpu().double(), ours.boxes.cpu().double(), p=torch.inf)
        distances[theirs.classes.cpu()[:, None] != ours.classes.cpu()] = torch.inf
        again += int((distances < 0.1).any(dim=1).sum())
        count += len(theirs.boxes)
    return again / max(1, count)


def fixed_answer(
    recipe: DetectorRecipe, engine: EngineName, device: torch.device, *, double: bool
) -> Answer:
    """Return the device's results for fixed samples and weights."""
    recipe = small_recipe(recipe)
    detector = build_detector(engine, recipe, arch="resnet18", num_classes=NUM_CLASSES, norm="BN")
    fill(detector.state_dict())
    if double:
        in_double(detector)
    move_to_device(detector, device)
    return answer(detector, [sample.to(device) for sample in small_samples(2, NUM_CLASSES)])


def small_recipe(recipe: DetectorRecipe) -> DetectorRecipe:
    """Return a narrow recipe without random sampling.

    For c4, the slow head is made small.
    """
    narrow = everything_sampled(recipe)
    return replace(narrow, rpn_proposals=(4, 4)) if recipe.neck == "c4" else narrow


def first_pass(
    recipe: DetectorRecipe, engine: EngineName, device: torch.device, precision: Precision
) -> tuple[float, bool]:
    """Return the first sum of losses, and whether gradients are finite."""
    detector = new_detector(small_recipe(recipe), engine, "resnet18", NUM_CLASSES)
    move_to_device(detector, device)
    samples = [sample.to(device) for sample in small_samples(2, NUM_CLASSES)]
    return one_pass(detector.train(), samples, device, precision)
