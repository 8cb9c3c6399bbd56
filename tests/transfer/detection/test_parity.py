"""Both engines are one detector: the same losses, gradients, detections, steps and AP.

`python -m tests.transfer.detection.test_parity` prints the differences as a table.
"""

from dataclasses import dataclass, replace

import pytest
import torch

from tests.transfer.detection.parity import (
    CASES,
    NUM_CLASSES,
    Case,
    answer,
    fill,
    worst_found,
    worst_gradient,
    worst_loss,
)
from tests.transfer.detection.same_weights import to_torchvision, torchvision_name
from tests.transfer.detection.small_scenes import small_samples
from transfer.backbone import random_backbone
from transfer.detection import detectron2_engine, torchvision_engine
from transfer.detection.sample import Detector, Sample
from transfer.detection.solver import sgd
from transfer.training.course import learning_rate, set_rate

pytestmark = pytest.mark.detectron2


def built(case: Case) -> tuple[Detector, Detector]:
    """detectron2's detector and torchvision's."""
    theirs, ours = (
        build(case.recipe, arch=case.arch, num_classes=NUM_CLASSES, norm="BN")
        for build in (detectron2_engine.build_detector, torchvision_engine.build_detector)
    )
    return theirs, ours


def both(case: Case) -> tuple[Detector, Detector]:
    """Both with the same weights."""
    theirs, ours = built(case)
    tensors = theirs.network.state_dict()
    fill({torchvision_name(name, case.recipe): tensor for name, tensor in tensors.items()})
    ours.network.load_state_dict(to_torchvision(tensors, case.recipe, NUM_CLASSES))
    return theirs, ours


def both_at_their_start(case: Case) -> tuple[Detector, Detector]:
    """From a random backbone, and new layers as detectron2 starts them."""
    torch.manual_seed(0)
    theirs, ours = built(case)
    backbone = random_backbone(arch=case.arch, stem="imagenet", seed=0)
    theirs.load_backbone(backbone.state_dict)
    tensors = theirs.network.state_dict()
    ours.network.load_state_dict(to_torchvision(tensors, case.recipe, NUM_CLASSES))
    return theirs, ours


def samples_of(case: Case) -> list[Sample]:
    return small_samples(3 if case.recipe.neck == "fpn" else 2, NUM_CLASSES)


@dataclass(frozen=True, kw_only=True)
class Differences:
    """Between the engines' answers."""

    loss: float
    gradient: float
    found: dict[str, float]
    num_gradients: int
    num_found: int


def differences(case: Case) -> Differences:
    theirs, ours = both(case)
    samples = samples_of(case)
    one, other = answer(theirs, samples), answer(ours, samples)
    gradients = to_torchvision(one.gradients, case.recipe, NUM_CLASSES)
    return Differences(
        loss=worst_loss(one.losses, other.losses),
        gradient=worst_gradient(gradients, other.gradients),
        found=worst_found(one.found, other.found),
        num_gradients=len(gradients),
        num_found=sum(len(found.boxes) for found in one.found),
    )


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_one_batch_gives_the_same_answer(case: Case) -> None:
    found = differences(case)
    assert found.loss < 1e-6
    assert found.gradient < 1e-4
    assert found.num_found > 10
    assert found.found["boxes"] < 1e-5
    assert max(found.found["scores"], found.found.get("masks", 0)) < 1e-6
    assert found.found.get("keypoints", 0) < 1e-5


def five_steps(case: Case) -> tuple[list[float], list[float], list[float], list[float]]:
    """Losses and learning rates of detectron2 with its own optimizer, and of ours."""
    from detectron2.solver import build_lr_scheduler, build_optimizer

    theirs, ours = both_at_their_start(case)
    samples = samples_of(case)
    settings = detectron2_engine.config(
        case.recipe, arch=case.arch, num_classes=NUM_CLASSES, norm="BN"
    )
    optimizer = build_optimizer(settings, theirs.network)
    scheduler = build_lr_scheduler(settings, optimizer)
    own_optimizer = sgd(ours, case.recipe)
    their_losses, our_losses, their_rates, our_rates = [], [], [], []
    for iteration in range(5):
        their_rates.append(optimizer.param_groups[0]["lr"])
        their_losses.append(step(theirs, samples, optimizer))
        scheduler.step()
        our_rates.append(learning_rate(case.recipe, iteration))
        set_rate(own_optimizer, our_rates[-1])
        our_losses.append(step(ours, samples, own_optimizer))
    return their_losses, our_losses, their_rates, our_rates


def step(detector: Detector, samples: list[Sample], optimizer: torch.optim.Optimizer) -> float:
    """The loss before it."""
    detector.network.train()
    loss = torch.stack(list(detector.network(samples).values())).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


STEPS = {
    name: replace(
        CASES[name],
        arch="resnet18",
        recipe=replace(
            CASES[name].recipe, learning_rate=0.005, milestones=(4, 8), warmup_iterations=2
        ),
    )
    for name in ("fpn boxes", "fpn masks", "fpn keypoints", "c4 moco", "c4 co2")
}
"""The end of the warm-up and a drop of the learning rate are among the five steps. At the published
rate, on so few and small images, the last bit of float32 grows tenfold and more with each step, and
one proposal that is suppressed on one side only is seen in the third decimal."""


@pytest.mark.slow
@pytest.mark.parametrize("case", STEPS.values(), ids=STEPS)
def test_five_steps_of_both_solvers_give_the_same_losses(case: Case) -> None:
    theirs, ours, their_rates, our_rates = five_steps(case)
    assert ours == pytest.approx(theirs, rel=1e-4)
    assert our_rates == pytest.approx(their_rates, rel=1e-6)
    assert theirs[-1] != pytest.approx(theirs[0], rel=1e-2)


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
        detector.network.train()
        torch.manual_seed(5)
        losses.append(detector.network(samples_of(case)))
    assert worst_loss(*losses) < 1e-6


if __name__ == "__main__":
    torch.set_num_threads(1)
    print(f"{'case':22} {'loss':>8} {'gradient':>8} of  detections")
    for name, case in CASES.items():
        each = differences(case)
        found = ", ".join(f"{kind} {value:.1e}" for kind, value in each.found.items())
        print(
            f"{name:22} {each.loss:8.1e} {each.gradient:8.1e} {each.num_gradients:3}"
            f"  {each.num_found}: {found}"
        )
