"""The linear task on two processes: batch norm and head equal one process with the whole batch."""

import json
import os
import subprocess
import sys
from collections import defaultdict
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from pretrain.running.processes import Process
from tests.transfer.segmentation.drawn_split import drawn_split
from tests.transfer.segmentation.test_linear import RECIPE, head, training_of
from tests.two_processes import ROOT, two_processes
from transfer.cells.request import Settings
from transfer.datasets.segmented import read_mask
from transfer.finetuning import loop
from transfer.finetuning.norms import Norm
from transfer.finetuning.state import summary
from transfer.finetuning.stream import single_samples
from transfer.segmentation.linear import training_sample

FOLDER = "LINEAR_HEADS"
"""Environment variable with the folder of both processes."""
BATCH = 8
VALUES_PER_CHANNEL = BATCH * (RECIPE.crop_px // 4) ** 2
"""Values in the batch norm's statistics: maps have a stride of 4 px."""
STEPS = 6
TOLERANCE = 1e-6
"""Maximum difference of a weight.

AdamW changes a weight by up to 1e-3 in each step, in proportion to gradients. Float32 sums of
gradients over two halves and over the whole batch differ by about 1e-7 of their largest term.
"""

pytestmark = pytest.mark.slow


def trained(folder: Path, norm: Norm, process: Process) -> dict[str, Any]:
    """Return the losses and weights of a head that was trained for a few steps."""
    recipe = replace(RECIPE, iterations=STEPS, batch_size=BATCH)
    network = head(recipe, norm=norm)
    split = drawn_split(folder / f"images-{process.rank}")
    samples = single_samples(split, training_sample, recipe, 0)
    item = training_of(network, folder / norm)
    loop.train(item, samples, seed=0, process=process, one_size=True)
    return {"losses": summary(item)["losses"], "weights": network.state_dict()}


def measure_losses(rank: int, num_processes: int) -> dict[str, Any]:
    """Train with the norm layers of two CPU processes, and with separate ones."""
    process = Process(rank=rank, num_processes=num_processes, device=torch.device("cpu"))
    norms: tuple[Norm, ...] = ("naiveSyncBN", "BN")
    return {norm: trained(Path(os.environ[FOLDER]), norm, process) for norm in norms}


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    folder = tmp_path_factory.mktemp("two")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FOLDER, str(folder))
        return two_processes("tests.transfer.segmentation.test_linear_on_two_processes", folder)


@pytest.fixture(scope="module")
def alone(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return trained(tmp_path_factory.mktemp("one"), "BN", Process(device=torch.device("cpu")))


def largest_difference(weights: dict[str, Tensor], others: dict[str, Tensor]) -> float:
    names = ("norm.weight", "norm.bias", "classifier.weight", "classifier.bias")
    return max(float((weights[name] - others[name]).abs().max()) for name in names)


def test_two_processes_train_the_head_of_one(
    processes: list[dict[str, Any]], alone: dict[str, Any]
) -> None:
    for process in processes:
        ours = process["naiveSyncBN"]
        assert ours["losses"] == pytest.approx(alone["losses"], rel=1e-5)
        assert largest_difference(ours["weights"], alone["weights"]) < TOLERANCE
        # statistics of half a batch give another head
        assert largest_difference(process["BN"]["weights"], alone["weights"]) > 100 * TOLERANCE


def test_running_statistics_span_both_processes(
    processes: list[dict[str, Any]], alone: dict[str, Any]
) -> None:
    mean, variance = (alone["weights"][f"norm.running_{name}"] for name in ("mean", "var"))
    # one process stores unbiased variances, naiveSyncBN biased ones, both after a start of 1
    start = (1 - 0.1) ** STEPS
    biased = start + (variance - start) * (VALUES_PER_CHANNEL - 1) / VALUES_PER_CHANNEL
    for process in processes:
        ours = process["naiveSyncBN"]["weights"]
        torch.testing.assert_close(ours["norm.running_mean"], mean)
        torch.testing.assert_close(ours["norm.running_var"], biased)


def test_torchrun_gives_the_losses_and_masks_of_one_process(
    checkpoint: Path, settings: Settings
) -> None:
    torchrun = ("torch.distributed.run", "--standalone", "--nproc-per-node", "2", "-m")
    records, masks = [], []
    for name, launcher in (("one", ("-m",)), ("two", ("-m", *torchrun))):
        results, runs = settings.results / name, settings.runs / name
        command = [sys.executable, *launcher, "transfer", "voc12_seg_linear", "--schedule", "smoke"]
        command += ["--ckpt", str(checkpoint), "--data", str(settings.data)]
        command += ["--results", str(results), "--runs", str(runs)]
        environment = {**os.environ, "OMP_NUM_THREADS": "1"}
        completed = subprocess.run(
            command, cwd=ROOT, env=environment, check=True, stdout=subprocess.PIPE, text=True
        )
        records.append(json.loads(Path(completed.stdout.split()[-1]).read_text()))
        (folder,) = runs.rglob("predictions")
        files = sorted(folder.rglob("*.png"))
        masks.append(np.concatenate([read_mask(mask).ravel() for mask in files]))
    details: dict[str, list[Any]] = defaultdict(list)
    for record in records:
        for field, value in record["details"].items():
            details[field].append(value)
    assert details["num_processes"] == [1, 2]
    assert details["norm"] == ["BN", "naiveSyncBN"]
    assert details["images_per_norm_statistic"] == [4, 4]
    losses = [training["losses"]["loss_seg"] for training in details["training"]]
    assert losses[1] == pytest.approx(losses[0], rel=1e-4)
    # running variances of 16 values per channel differ by 16/15 in the first steps
    assert (masks[0] == masks[1]).mean() > 0.98
    assert records[1]["metrics"]["mIoU"] == pytest.approx(records[0]["metrics"]["mIoU"], abs=1)
