"""Steps during which the host waits for no GPU, but in the methods that have to."""

import warnings
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager

import torch

from pretrain.checks.place import Place
from pretrain.checks.report import Fact, Outcome, judged, skipped
from pretrain.checks.started import SMALL_VIEWS, small_images, start_job
from pretrain.data.side_stream import made_aside
from pretrain.loop import Training, training_step

EIGENVALUES = "the solver of eigenvalues looks for its own failure"
CHOLESKY = "a failed factorization is repeated with a larger ridge"
WAITS: dict[str, tuple[int, str]] = {
    "lorac": (1, EIGENVALUES),
    "zero_cl": (1, EIGENVALUES),
    "simwhitening": (1, CHOLESKY),
    "simtrace": (1, CHOLESKY),
    "wmse": (1, CHOLESKY),
}
"""Method -> waits of a step on one process at most, and their reason; others do not wait."""
WAITS_OF_METRICS: dict[str, tuple[int, str]] = {"moco_m": (1, EIGENVALUES)}
"""The same, of a step after which metrics are read."""
NO_GPU = "needs CUDA: nobody waits for a CPU"
SYNCHRONIZING = "called a synchronizing CUDA operation"
"""Words of PyTorch's warning and error."""
WARM_UP_STEPS = 2
"""Steps before the counted ones: kernels are loaded and measured in the first of each kind."""
COUNTED_STEPS = 2
"""One step after which metrics are read, and one without."""


def without_waits(place: Place, name: str) -> Outcome:
    """Take steps of a method's smoke recipe and make its batches; fail if one waits for the GPU."""
    if not place.on_gpu:
        return skipped(NO_GPU)
    options = ["--memory-gb", "0", "--read-every-steps", "2", *SMALL_VIEWS]
    options += ["--steps", str(WARM_UP_STEPS + COUNTED_STEPS)]
    job = start_job(f"{name}/smoke", place, small_images(place), *options)
    training = Training(job)
    waited: dict[bool, int] = {}
    made = made_aside(job.feed.batches(0, job.num_steps), place.device)
    with closing(made) as batches:
        for step in range(job.num_steps):
            reads = job.is_read_step(step + 1)
            if step < WARM_UP_STEPS:
                training_step(job, training, training.method, next(batches))
            elif allowed_waits(name, reads)[0]:
                with counted_waits() as waits:
                    training_step(job, training, training.method, next(batches))
                waited[reads] = len(waits)
            else:
                with forbidden_waits(place):
                    training_step(job, training, training.method, next(batches))
                waited[reads] = 0
    return judged_waits(name, waited)


def allowed_waits(name: str, reads: bool) -> tuple[int, str]:
    """Return how often a method's step may wait, and why; metrics are read after it or not."""
    none = (0, "")
    return WAITS.get(name, none) if not reads else (WAITS | WAITS_OF_METRICS).get(name, none)


def judged_waits(name: str, waited: Mapping[bool, int]) -> Outcome:
    """Return the outcome of steps that waited so often, by whether metrics are read after them."""
    failures: list[str] = []
    facts: dict[str, Fact] = {}
    for reads, number in waited.items():
        allowed, reason = allowed_waits(name, reads)
        step = "step_with_metrics" if reads else "step"
        facts |= {f"waits_of_{step}": number, f"allowed_in_{step}": allowed}
        if reason:
            facts["why"] = reason
        if number > allowed:
            failures.append(f"a {step.replace('_', ' ')} waits {number} times, not {allowed}")
    return judged(failures, facts)


@contextmanager
def forbidden_waits(place: Place) -> Iterator[None]:
    """Raise a RuntimeError where something waits for the GPU; on a CPU nothing does."""
    if not place.on_gpu:
        yield
        return
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode(before)


@contextmanager
def counted_waits() -> Iterator[list[str]]:
    """Give a list that holds, after the block, the place of each wait for the GPU."""
    places: list[str] = []
    before = torch.cuda.get_sync_debug_mode()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        torch.cuda.set_sync_debug_mode("warn")
        try:
            yield places
        finally:
            torch.cuda.set_sync_debug_mode(before)
    places += [f"{each.filename}:{each.lineno}" for each in caught if is_wait(each)]


def is_wait(warning: warnings.WarningMessage) -> bool:
    """Return whether a warning is that of a wait."""
    return SYNCHRONIZING in str(warning.message)
