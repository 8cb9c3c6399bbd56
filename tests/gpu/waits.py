"""Steps never wait for the GPU, except in methods that must."""

import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager

import torch

from pretrain.loop import Training, training_step
from tests.gpu.findings import Findings
from tests.gpu.started import Workspace, small_images, start_job

EIGENVALUES = "the solver of eigenvalues looks for its own failure"
CHOLESKY = "a failed factorization is repeated with a larger ridge"
WAITS: dict[str, tuple[int, str]] = {
    "lorac": (1, EIGENVALUES),
    "zero_cl": (1, EIGENVALUES),
    "simwhitening": (1, CHOLESKY),
    "simtrace": (1, CHOLESKY),
    "wmse": (1, CHOLESKY),
}
"""Method -> largest number of waits per step, and reason.

For one process. Other methods do not wait.
"""
WAITS_OF_METRICS: dict[str, tuple[int, str]] = {"moco_m": (1, EIGENVALUES)}
"""The same, for a step after which metrics are read."""
SYNCHRONIZING = "called a synchronizing CUDA operation"
"""Part of PyTorch's warning and error."""
WARM_UP_STEPS = 2
"""Warm-up steps, in which kernels are loaded and timed."""
COUNTED_STEPS = 2
"""One step after which metrics are read, and one without."""


def count_waits(workspace: Workspace, name: str, findings: Findings) -> None:
    """Note how often smoke-recipe steps and their batches wait for the GPU."""
    options = ["--memory-gb", "0", "--read-every-steps", "2"]
    options += ["--steps", str(WARM_UP_STEPS + COUNTED_STEPS)]
    job = start_job(f"{name}/smoke", workspace, small_images(workspace), *options)
    training = Training(job)
    with closing(job.feed.batches(0, job.num_steps)) as batches:
        for step in range(job.num_steps):
            if step < WARM_UP_STEPS:
                training_step(job, training, training.method, next(batches))
                continue
            reads = job.is_read_step(step + 1)
            with counted_waits() as waits:
                training_step(job, training, training.method, next(batches))
            expected = WAITS | WAITS_OF_METRICS if reads else WAITS
            allowed, reason = expected.get(name, (0, ""))
            title = "waits of a step with metrics" if reads else "waits of a step"
            findings.add(f"{title}, {reason}" if reason else title, len(waits), allowed)


@contextmanager
def forbidden_waits(workspace: Workspace) -> Iterator[None]:
    """Raise a RuntimeError at each wait for the GPU.

    No effect on a CPU.
    """
    if not workspace.on_gpu:
        yield
        return
    previous = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Synchronization debug mode is a prototype")
        torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(previous)


@contextmanager
def counted_waits() -> Iterator[list[str]]:
    """Return a list that collects the location of each GPU wait."""
    locations: list[str] = []
    previous = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield locations
        finally:
            torch.cuda.set_sync_debug_mode(previous)
    locations += [
        f"{warning.filename}:{warning.lineno}"
        for warning in caught
        if SYNCHRONIZING in str(warning.message)
    ]
