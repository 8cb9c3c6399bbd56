"""Resumed runs and runs under DDP against plain, uninterrupted ones."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from pretrain import loop
from pretrain.job import Job
from pretrain.loop import train, wrap_network
from pretrain.running.processes import Process
from tests.gpu.findings import Findings
from tests.gpu.rounding import perturb
from tests.gpu.started import Workspace, small_images, smooth, start_job
from tests.tiny_methods import losses, stop_after

NUM_STEPS, STOP_AFTER = 4, 2


RUNS: Mapping[str, tuple[str, ...]] = {
    "moco": ("moco/smoke",),
    "byol with LARS": ("byol/smoke", "--optimizer", "lars", "--learning-rate", "1"),
    "dino after a thaw": ("dino/smoke", "--schedule-unit", "step", "--last-layer-from", "0.25"),
}


@pytest.mark.parametrize("run", RUNS)
def test_a_run_that_goes_on_from_a_checkpoint(
    run: str, workspace: Workspace, findings: Findings
) -> None:
    """Four steps equal two steps, a checkpoint and two more.

    Losses and weights are equal on a CPU. On a GPU, sums by atomic additions (backward passes of
    convolutions, blurs) have no fixed order. Their effect on four steps is measured by a run with
    first weights that are changed by one unit of rounding.
    """
    recipe, *options = RUNS[run]
    expected = finished(start(workspace, "whole", recipe, options))
    stopped = start(workspace, "stopped", recipe, options)
    with stop_after(STOP_AFTER):
        assert train(stopped) == STOP_AFTER
    result = finished(start(workspace, "stopped", recipe, options))
    moved = (
        [finished(changed(start(workspace, "changed", recipe, options)))]
        if workspace.on_gpu
        else []
    )
    findings.compare(result, expected, moved)


def test_a_run_under_ddp_in_one_process(
    workspace: Workspace, findings: Findings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Training with DDP's gradient buckets equals training without.

    On a GPU also with nccl.
    """
    expected = finished(start(workspace, "plain", "moco/smoke", ()))
    moved = (
        [finished(changed(start(workspace, "changed", "moco/smoke", ())))]
        if workspace.on_gpu
        else []
    )
    device = torch.device("cuda", 0) if workspace.on_gpu else workspace.device
    process = Process(device=device, num_processes=2)
    wrapped: list[nn.Module] = []

    def wrap(job: Job, method: nn.Module) -> nn.Module:
        wrapped.append(wrap_network(replace(job, process=process), method))
        return wrapped[-1]

    monkeypatch.setattr(loop, "wrap_network", wrap)
    backend = "nccl" if workspace.on_gpu else "gloo"
    store = f"file://{workspace.folder / 'store'}"
    dist.init_process_group(backend, store, rank=0, world_size=1)
    try:
        result = finished(start(workspace, "wrapped", "moco/smoke", ()))
    finally:
        dist.destroy_process_group()
    assert [type(network) for network in wrapped] == [DistributedDataParallel]
    findings.compare(result, expected, moved)


def changed(job: Job) -> Job:
    """Return the job with first weights changed by one unit of rounding."""
    perturb(job.method.parameters(), torch.float32, torch.Generator().manual_seed(1))
    return job


def start(workspace: Workspace, out: str, recipe: str, options: Sequence[str]) -> Job:
    """Return a run's job in a separate folder, with smooth networks."""
    args = ["--steps", str(NUM_STEPS), "--read-every-steps", "1", "--precision", "float32"]
    job = start_job(recipe, workspace, small_images(workspace), *args, *options, out=out)
    job.command.out.mkdir(exist_ok=True)
    smooth(job.method)
    return job


def finished(job: Job) -> dict[str, Tensor]:
    """Train to the end.

    Return all losses and the final weights and buffers, on the CPU.
    """
    train(job)
    state = {name: values.cpu() for name, values in job.method.state_dict().items()}
    return {"loss": torch.tensor([loss for _, loss in losses(job.command.out)]), **state}
