"""Trainings that save and restore their state on the device."""

from pathlib import Path

import pytest
import torch
from torch import Tensor

from benchmarks.gpu.evaluation import (
    TrainingSetup,
    detector_setup,
    new_classifier,
    new_detector,
    training_step,
)
from tests.gpu.findings import Findings, norm_difference
from tests.gpu.started import Workspace
from tests.gpu.test_detectors import NUM_CLASSES, small_recipe
from tests.transfer.detection.small_samples import small_samples
from transfer.detection.recipe import COCO_FPN
from transfer.finetuning.state import Training, restore, save

STEPS = 2
"""Steps before the state is saved, and afterwards."""
MOST_APART = 0.01
"""Allowed difference of resumed steps from undisturbed ones, relative to their length.

A GPU adds up some gradients in an order that changes (RoIAlign, upsampling), so that the last bits
of float32 differ, and each step enlarges them tenfold or more. A lost momentum is a third and more.
"""


def detector(device: torch.device) -> TrainingSetup:
    """Return a torchvision box detector, and two small images."""
    recipe, samples = small_recipe(COCO_FPN), small_samples(2, NUM_CLASSES)
    created = new_detector(recipe, "torchvision", "resnet18", NUM_CLASSES)
    return detector_setup(created, recipe, samples, device, learning_rate=1e-3)


SUBJECTS = {
    "classifier": lambda device: new_classifier("resnet18", 64, 4, device, 4),
    "detector": detector,
}


def training_of(subject: TrainingSetup, folder: Path) -> Training:
    """Return the folder's training before its first step."""
    network = subject.network.train()
    return Training(network=network, optimizer=subject.optimizer, schedule=COCO_FPN, folder=folder)


@pytest.mark.parametrize("kind", SUBJECTS)
def test_a_training_that_is_saved_and_restored(
    kind: str, workspace: Workspace, findings: Findings
) -> None:
    """Steps after a restored state equal the steps of the saving run."""
    new, folder = SUBJECTS[kind], workspace.folder / kind
    undisturbed = new(workspace.device)
    take_steps(undisturbed, workspace)
    training = training_of(undisturbed, folder)
    training.iteration = STEPS
    save(training)
    saved = state_of(undisturbed)
    take_steps(undisturbed, workspace)
    resumed = new(workspace.device)
    restored = training_of(resumed, folder)
    restore(restored)
    findings.require("memory layout", layouts_agree(resumed), "not the weights'")
    take_steps(resumed, workspace)
    findings.add("steps after the resume", steps_apart(resumed, undisturbed, saved), MOST_APART)


def take_steps(subject: TrainingSetup, workspace: Workspace) -> None:
    """Take the steps of one half of the training."""
    for _ in range(STEPS):
        training_step(subject, workspace.device, "float32")


def state_of(subject: TrainingSetup) -> dict[str, Tensor]:
    """Return copies of weights, statistics and momenta, on the CPU."""
    state = subject.network.state_dict()
    tensors = {name: tensor.detach().double().cpu() for name, tensor in state.items()}
    for name, parameter in subject.network.named_parameters():
        momentum = subject.optimizer.state.get(parameter, {}).get("momentum_buffer")
        if momentum is not None:
            tensors[f"momentum of {name}"] = momentum.double().cpu()
    return tensors


def layouts_agree(subject: TrainingSetup) -> bool:
    """Return whether momenta exist, all in the memory layout of their weights."""
    momenta = {w: state["momentum_buffer"] for w, state in subject.optimizer.state.items()}
    return bool(momenta) and all(
        momentum.stride() == weight.stride() for weight, momentum in momenta.items()
    )


def steps_apart(
    resumed: TrainingSetup, undisturbed: TrainingSetup, saved: dict[str, Tensor]
) -> float:
    """Return the distance of two trainings, relative to their whole way.

    The way begins at the saved state.

    saved: the weights of that state, by name and in their shapes.
    """
    names = [name for name, _ in undisturbed.network.named_parameters()]
    ours, theirs = (
        {name: state[name] - saved[name] for name in names}
        for state in (state_of(resumed), state_of(undisturbed))
    )
    return norm_difference(ours, theirs)
