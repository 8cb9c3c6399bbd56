"""Two processes with half a batch each equal one with the whole, in training and in the test."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from pretrain.running.processes import Process
from tests.transfer.segmentation.drawn_split import drawn_split
from tests.two_processes import two_processes
from transfer.backbone import random_backbone
from transfer.finetuning.norms import norm_for
from transfer.segmentation.network import FCN, build_network, load_backbone
from transfer.segmentation.recipe import VOC_FCN
from transfer.segmentation.train import predict, train

pytestmark = pytest.mark.slow
FOLDER = "SEGMENTATIONS"
"""Variable of the environment: where two processes meet."""
CPU = torch.device("cpu")
ONE_STEP = replace(VOC_FCN.tiny(), iterations=1, milestones=(), learning_rate=1.0, weight_decay=0.0)
"""Weights fall by their gradient."""
NUM_IMAGES = 3
"""Number of images to predict: one process has two of them."""


def network_of(num_processes: int, folder: Path) -> FCN:
    torch.manual_seed(0)
    norm = norm_for(ONE_STEP.synchronized_norm, CPU, num_processes)
    log = folder / "log"
    network = build_network(ONE_STEP, arch="resnet18", num_classes=3, norm=norm, log=log)
    backbone = random_backbone(arch="resnet18", stem="imagenet", seed=0)
    load_backbone(network, backbone.state_dict)
    return network.double()  # norms enlarge roundings, and a rounding may decide of a pixel's class


def measure_losses(rank: int, num_processes: int) -> dict[str, Any]:
    """Loss, gradients and means of norms of one step; then the weights before it predict."""
    process = Process(rank=rank, num_processes=num_processes, device=CPU)
    folder = Path(os.environ[FOLDER])
    own = folder / f"images-{rank}"
    own.mkdir()
    split, network = drawn_split(own), network_of(num_processes, own)
    before = {name: weight.detach().clone() for name, weight in network.named_parameters()}
    told = train(network, split, ONE_STEP, seed=1, folder=folder, process=process, num_workers=0)
    after = network.state_dict()
    shown, network = split.subset(range(NUM_IMAGES)), network_of(num_processes, own)
    predict(network, shown, folder / "predictions", process)
    return {
        "losses": told.losses,
        "gradients": {name: weight - after[name] for name, weight in before.items()},
        "means": {name: mean for name, mean in after.items() if name.endswith("running_mean")},
    }


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Return a folder for the training of one process, and one for that of two."""
    return tmp_path_factory.mktemp("one"), tmp_path_factory.mktemp("two")


@pytest.fixture(scope="module")
def whole_and_halves(folders: tuple[Path, Path]) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Return the measurements of one process, and of each of two."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv(FOLDER, str(folders[0]))
        whole = measure_losses(0, 1)
        patched.setenv(FOLDER, str(folders[1]))
        return whole, two_processes(__name__, folders[1])


def test_two_processes_take_the_step_of_one(
    whole_and_halves: tuple[dict[str, Any], list[dict[str, Any]]],
) -> None:
    whole, halves = whole_and_halves
    for half in halves:
        assert half["losses"] == pytest.approx(whole["losses"])
        for name, gradient in whole["gradients"].items():
            difference = (half["gradients"][name] - gradient).norm()
            assert difference < 1e-7 * gradient.norm(), name
        torch.testing.assert_close(half["means"], whole["means"])


def test_two_processes_predict_the_masks_of_one(
    whole_and_halves: object, folders: tuple[Path, Path]
) -> None:
    one, two = (
        {file.name: file.read_bytes() for file in (folder / "predictions").iterdir()}
        for folder in folders
    )
    assert sorted(one) == ["0.png", "1.png", "2.png"]
    assert one == two
