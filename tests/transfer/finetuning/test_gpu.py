"""Changes for a GPU, on a CPU: both layouts and kernels compute the same."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from tests.transfer.detection.fixed_detector import answer, fill, in_double, lean
from tests.transfer.detection.parity import (
    CASES,
    GRADIENT,
    LOSS,
    NUM_CLASSES,
    worst_loss,
    worst_tensor,
)
from tests.transfer.detection.small_samples import small_samples
from transfer.detection.torchvision_engine.detector import TorchvisionDetector
from transfer.detection.torchvision_engine.network import RCNN
from transfer.finetuning import gpu
from transfer.finetuning.state import Training, restore, save

CPU = torch.device("cpu")


def layers() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 5, 1), nn.Flatten())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["fpn boxes resnet18", "c4 co2 resnet18"])
def test_a_detector_in_channels_last_has_the_same_losses_and_gradients(name: str) -> None:
    answers = []
    for channels_last in (False, True):
        recipe = lean(CASES[name].recipe)
        network = RCNN(recipe, arch="resnet18", num_classes=NUM_CLASSES, norm="BN")
        fill(network.state_dict())
        in_double(network)
        if channels_last:
            gpu.use_channels_last(network)
        samples = small_samples(2, num_classes=NUM_CLASSES)
        answers.append(answer(TorchvisionDetector(network), samples))
    plain, changed = answers
    assert worst_loss(plain.losses, changed.losses) < LOSS
    assert worst_tensor(plain.gradients, changed.gradients) < GRADIENT


def test_algorithms_are_measured_for_one_size_on_a_gpu_only_and_only_within() -> None:
    before = torch.backends.cudnn.benchmark
    for device, one_size in (("cpu", True), ("cuda", False), ("cuda", True)):
        with gpu.measured_convolutions(torch.device(device), one_size=one_size):
            assert torch.backends.cudnn.benchmark == (before or (device == "cuda" and one_size))
        assert torch.backends.cudnn.benchmark == before


@pytest.mark.parametrize("name", gpu.ALLOCATOR_VARIABLES)
def test_what_the_user_says_of_the_memory_stays(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in gpu.ALLOCATOR_VARIABLES:
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv(name, "max_split_size_mb:64")
    gpu.use_expandable_segments()
    found = {variable: os.environ.get(variable) for variable in gpu.ALLOCATOR_VARIABLES}
    assert {*found.values()} == {"max_split_size_mb:64", None}


def steps(training: Training, numbers: Sequence[int]) -> None:
    for number in numbers:
        generator = torch.Generator().manual_seed(number)
        for weight in training.network.parameters():
            noise = torch.randn(weight.shape, generator=generator)
            weight.grad = torch.empty_like(weight).copy_(noise)
        training.optimizer.step()


def new_training() -> Training:
    network = layers()
    gpu.use_channels_last(network)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", enabled=False)
    return Training(network=network, optimizer=optimizer, scaler=scaler)


def test_momenta_come_back_in_the_layout_of_their_weights(tmp_path: Path) -> None:
    whole, part, again = (new_training() for _ in range(3))
    steps(whole, range(4))
    steps(part, range(2))
    save(part, tmp_path / "training.stage")
    restore(again, tmp_path / "training.stage")
    for weight in again.network.parameters():
        momentum: Tensor = again.optimizer.state[weight]["momentum_buffer"]
        assert momentum.stride() == weight.stride()
    steps(again, range(2, 4))
    pairs = zip(again.network.parameters(), whole.network.parameters(), strict=True)
    assert all(torch.equal(found, expected) for found, expected in pairs)
