"""Both engines are one detector: the same draws, losses, gradients, detections and steps.

Convolutions in float64: then no rounding of theirs decides which proposal is kept, and what is left
are some operations in float32 on losses, scores and boxes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.transfer.detection.fixed_detector import fill, in_double, lean
from tests.transfer.detection.parity import (
    CASES,
    CO2,
    GRADIENT,
    LOSS,
    NUM_CLASSES,
    Case,
    worst_loss,
    worst_tensor,
)
from tests.transfer.detection.same_weights import to_torchvision, torchvision_name
from tests.transfer.detection.small_samples import small_samples
from transfer.backbone import random_backbone
from transfer.detection import detectron2_engine
from transfer.detection.detector import Detector, Sample
from transfer.detection.recipe import DetectorRecipe
from transfer.detection.torchvision_engine.network import RCNN
from transfer.detection.train import sgd
from transfer.finetuning.schedule import learning_rate, set_rate

pytestmark = pytest.mark.detectron2


def built(case: Case) -> tuple[Detector, Detector]:
    """detectron2's detector and torchvision's."""
    theirs, ours = (
        build(case.recipe, arch=case.arch, num_classes=NUM_CLASSES, norm="BN")
        for build in (detectron2_engine.build_detector, RCNN)
    )
    return theirs, ours


def both(case: Case) -> tuple[Detector, Detector]:
    """Both with the same weights."""
    theirs, ours = built(case)
    tensors = theirs.state_dict()
    fill({torchvision_name(name, case.recipe): tensor for name, tensor in tensors.items()})
    ours.load_state_dict(to_torchvision(tensors, case.recipe, NUM_CLASSES))
    return theirs, ours


def both_at_their_start(case: Case) -> tuple[Detector, Detector]:
    """Return both detectors on one random backbone, with new layers as detectron2 starts them."""
    torch.manual_seed(0)
    theirs, ours = built(case)
    backbone = random_backbone(arch=case.arch, stem="imagenet", seed=0)
    theirs.load_backbone(backbone.state_dict)
    tensors = theirs.state_dict()
    ours.load_state_dict(to_torchvision(tensors, case.recipe, NUM_CLASSES))
    return theirs, ours


def samples_of(case: Case) -> list[Sample]:
    return small_samples(3 if case.recipe.neck == "fpn" else 2, NUM_CLASSES)


@dataclass(frozen=True, kw_only=True)
class Training:
    """Five steps on one batch, and where they led."""

    losses: list[dict[str, Tensor]]
    """Losses before each step."""
    rates: list[float]
    """Rate of each step; where the RPN has another one, that of the rest."""
    weights: dict[str, Tensor]
    """Weights and running statistics after the last step, under the torchvision engine's names."""


def theirs_trained(case: Case, detector: Detector) -> Training:
    """Train with detectron2's optimizer and schedule."""
    from detectron2.solver import build_lr_scheduler

    settings = detectron2_engine.config(
        case.recipe, arch=case.arch, num_classes=NUM_CLASSES, norm="BN"
    )
    optimizer = their_optimizer(settings, detector, case.recipe)
    scheduler = build_lr_scheduler(settings, optimizer)
    losses, rates = [], []
    for _ in range(5):
        rates.append(max(group["lr"] for group in optimizer.param_groups))
        losses.append(step(detector, samples_of(case), optimizer))
        scheduler.step()
    weights = to_torchvision(detector.state_dict(), case.recipe, NUM_CLASSES)
    return Training(losses=losses, rates=rates, weights=learned(weights))


def their_optimizer(
    settings: Any, detector: Detector, recipe: DetectorRecipe
) -> torch.optim.Optimizer:
    """Return detectron2's optimizer; the rate for the RPN alone is set in its groups."""
    from detectron2.solver import build_optimizer, get_default_optimizer_params

    if recipe.rpn_gradient != "lr_mult":
        optimizer: torch.optim.Optimizer = build_optimizer(settings, detector)
        return optimizer
    groups = get_default_optimizer_params(
        detector,
        base_lr=settings.SOLVER.BASE_LR,
        weight_decay=settings.SOLVER.WEIGHT_DECAY,
        weight_decay_norm=settings.SOLVER.WEIGHT_DECAY_NORM,
        lr_factor_func=lambda name: 0.1 if "proposal_generator" in name else 1.0,
    )
    return torch.optim.SGD(groups, momentum=settings.SOLVER.MOMENTUM)


def ours_trained(case: Case, detector: Detector) -> Training:
    """Train with our optimizer and schedule."""
    optimizer = sgd(detector, case.recipe)
    losses, rates = [], []
    for iteration in range(5):
        rates.append(learning_rate(case.recipe, iteration))
        set_rate(optimizer, rates[-1])
        losses.append(step(detector, samples_of(case), optimizer))
    return Training(losses=losses, rates=rates, weights=learned(detector.state_dict()))


def learned(state_dict: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return weights and statistics without the counters."""
    return {name: value for name, value in state_dict.items() if value.is_floating_point()}


def step(
    detector: Detector, samples: list[Sample], optimizer: torch.optim.Optimizer
) -> dict[str, Tensor]:
    """The losses before it."""
    detector.train()
    losses: dict[str, Tensor] = detector(samples)
    optimizer.zero_grad()
    torch.stack(list(losses.values())).sum().backward()
    optimizer.step()
    return {name: loss.detach() for name, loss in losses.items()}


def for_five_steps(case: Case) -> Case:
    """The end of the warm-up and a drop of the learning rate are among them."""
    return replace(
        case, arch="resnet18", recipe=replace(case.recipe, milestones=(4, 8), warmup_iterations=2)
    )


STEPS = {
    name: for_five_steps(CASES[name])
    for name in ("fpn boxes", "fpn masks", "fpn keypoints", "c4", "c4 moco", "c4 co2")
} | {"c4 lr_mult": for_five_steps(Case(recipe=replace(CO2, rpn_gradient="lr_mult")))}


@pytest.mark.slow
@pytest.mark.parametrize("case", STEPS.values(), ids=STEPS)
def test_five_steps_of_both_solvers_lead_to_the_same_weights(case: Case) -> None:
    case = replace(case, recipe=lean(case.recipe))
    detectors = both_at_their_start(case)
    for detector in detectors:
        in_double(detector)
    theirs, ours = theirs_trained(case, detectors[0]), ours_trained(case, detectors[1])
    for one, other in zip(theirs.losses, ours.losses, strict=True):
        assert worst_loss(one, other) < LOSS
    assert ours.rates == pytest.approx(theirs.rates, rel=1e-6)
    assert worst_tensor(theirs.weights, ours.weights) < GRADIENT
    assert total(theirs.losses[-1]) != pytest.approx(total(theirs.losses[0]), rel=1e-2)


def total(losses: Mapping[str, Tensor]) -> float:
    return sum(loss.item() for loss in losses.values())


@pytest.mark.parametrize("name", ["fpn boxes", "c4 co2"])
def test_one_seed_draws_the_same_anchors_and_regions(name: str) -> None:
    case = CASES[name]
    drawing = replace(
        case.recipe,
        rpn_samples=32,
        rpn_positive_share=0.5,
        roi_samples=8,
        roi_positive_share=0.25,
    )
    theirs, ours = both(Case(recipe=drawing))
    losses = []
    for detector in (theirs, ours):
        in_double(detector)
        detector.train()
        torch.manual_seed(5)
        losses.append(detector(samples_of(case)))
    assert worst_loss(*losses) < LOSS
