"""Runs that go on from a checkpoint against runs that never stopped."""

import json
from collections.abc import Mapping, Sequence

import pytest
import torch
from torch import Tensor

from pretrain.loop import train
from pretrain.run import Job
from tests.gpu.findings import Findings
from tests.gpu.rounding import Results, perturb
from tests.gpu.started import Place, small_images, smooth, start_job
from tests.stop_after import stop_after

NUM_STEPS, STOP_AFTER = 4, 2


RUNS: Mapping[str, tuple[str, ...]] = {
    "moco": ("moco/smoke",),
    "byol with LARS": ("byol/smoke", "--optimizer", "lars", "--learning-rate", "1"),
}


@pytest.mark.parametrize("run", RUNS)
def test_a_run_that_goes_on_from_a_checkpoint(run: str, place: Place, findings: Findings) -> None:
    """Losses and weights of four steps are those of two steps, a checkpoint and two more.

    On a CPU they are equal. On a GPU sums by atomic additions, as in backwards of convolutions and
    in blurs, have no fixed order: what that may do to four steps is measured by a run whose first
    weights are changed by one unit of rounding.
    """
    recipe, *options = RUNS[run]
    expected = finished(start(place, "whole", recipe, options))
    stopped = start(place, "stopped", recipe, options)
    with stop_after(STOP_AFTER):
        assert train(stopped) == STOP_AFTER
    found = finished(start(place, "stopped", recipe, options))
    moved: list[Results] = []
    if place.on_gpu:
        changed = start(place, "changed", recipe, options)
        generator = torch.Generator().manual_seed(1)
        perturb(changed.method.parameters(), torch.float32, generator)
        moved.append(finished(changed))
    findings.compare(found, expected, moved)


def start(place: Place, out: str, recipe: str, options: Sequence[str]) -> Job:
    """Return the job of a run in a folder of its own, with smooth networks."""
    words = ["--steps", str(NUM_STEPS), "--read-every-steps", "1", "--precision", "float32"]
    job = start_job(recipe, place, small_images(place), *words, *options, out=out)
    job.command.out.mkdir(exist_ok=True)
    smooth(job.method)
    return job


def finished(job: Job) -> dict[str, Tensor]:
    """Train to the end; return all losses and the final weights and buffers, on the CPU."""
    train(job)
    lines = (job.command.out / "metrics.jsonl").read_text().splitlines()
    losses = [float(json.loads(line)["loss"]) for line in lines]
    state = {name: values.cpu() for name, values in job.method.state_dict().items()}
    return {"loss": torch.tensor(losses), **state}
