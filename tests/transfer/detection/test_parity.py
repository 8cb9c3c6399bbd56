"""Both engines give equal samples, losses, gradients, detections and steps.

Convolutions run in float64, so that no rounding decides which proposal is kept. Only some float32
operations on losses, scores and boxes differ.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.transfer.detection.fixed_detector import fill, in_double, lean
from tests.transfer.detection.parity import CASES, GRADIENT, LOSS, NUM_CLASSES, worst_tensor
from tests.transfer.detection.same_weights import to_torchvision, torchvision_name
from tests.transfer.detection.small_samples import small_samples
from transfer.detection import detectron2_engine
from transfer.detection.detector import Detector, Sample
from transfer.detection.recipe import DetectorRecipe
from transfer.detection.torchvision_engine.network import RCNN
from transfer.encoders.encoder import random_backbone
from transfer.finetuning.schedule import learning_rate, set_learning_rate

pytestmark = pytest.mark.detectron2


def built(recipe: DetectorRecipe, *, filled: bool) -> tuple[Detector, Detector]:
    """detectron2's detector and torchvision's with the same weights, convolutions in float64.

    Filled: all are made up. Else the backbone is a random one, and new layers are as detectron2
    starts them.
    """
    torch.manual_seed(0)
    theirs, ours = (
        build(recipe, arch="resnet18", num_classes=NUM_CLASSES, norm="BN")
        for build in (detectron2_engine.build_detector, RCNN)
    )
    backbone = random_backbone(arch="resnet18", stem="imagenet", seed=0)
    theirs.load_backbone(backbone.state_dict)
    tensors = theirs.state_dict()
    if filled:
        fill({torchvision_name(name, recipe): tensor for name, tensor in tensors.items()})
    ours.load_state_dict(to_torchvision(tensors, recipe))
    in_double(theirs)
    in_double(ours)
    return theirs, ours


def samples_of(recipe: DetectorRecipe) -> list[Sample]:
    return small_samples(3 if recipe.neck == "fpn" else 2, NUM_CLASSES)


def their_optimizer(
    settings: Any, detector: Detector, recipe: DetectorRecipe
) -> torch.optim.Optimizer:
    """Return detectron2's optimizer.

    The rate for the RPN alone is set in its groups.
    """
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


STEPS = {
    name: CASES[name]
    for name in ("fpn boxes", "fpn masks", "fpn keypoints", "c4", "c4 moco", "c4 co2")
} | {"c4 lr_mult": replace(CASES["c4 co2"], rpn_gradient="lr_mult")}


@pytest.mark.slow
@pytest.mark.parametrize("name", STEPS)
def test_five_steps_of_both_solvers_lead_to_the_same_weights(name: str) -> None:
    from detectron2.solver import build_lr_scheduler

    # the end of the warm-up and a drop of the learning rate are among the steps
    recipe = replace(lean(STEPS[name]), milestones=(4, 8), warmup_iterations=2)
    theirs, ours = built(recipe, filled=False)
    settings = detectron2_engine.config(recipe, arch="resnet18", num_classes=NUM_CLASSES, norm="BN")
    optimizer, actual = their_optimizer(settings, theirs, recipe), ours.optimizer(recipe)
    scheduler = build_lr_scheduler(settings, optimizer)
    totals = []
    for iteration in range(5):
        rate = learning_rate(recipe, iteration)
        # where the RPN has another rate, that of the rest
        assert rate == pytest.approx(max(g["lr"] for g in optimizer.param_groups), rel=1e-6)
        set_learning_rate(actual, rate)
        losses = step(theirs, samples_of(recipe), optimizer)
        scheduler.step()
        assert worst_tensor(losses, step(ours, samples_of(recipe), actual)) < LOSS
        totals.append(sum(loss.item() for loss in losses.values()))
    weights = learned(to_torchvision(theirs.state_dict(), recipe))
    assert worst_tensor(weights, learned(ours.state_dict())) < GRADIENT
    assert totals[-1] != pytest.approx(totals[0], rel=1e-2)


@pytest.mark.parametrize("name", ["fpn boxes", "c4 co2"])
def test_one_seed_draws_the_same_anchors_and_regions(name: str) -> None:
    recipe = replace(
        CASES[name],
        rpn_samples=32,
        rpn_positive_share=0.5,
        roi_samples=8,
        roi_positive_share=0.25,
    )
    losses = []
    for detector in built(recipe, filled=True):
        detector.train()
        torch.manual_seed(5)
        losses.append(detector(samples_of(recipe)))
    assert worst_tensor(*losses) < LOSS
