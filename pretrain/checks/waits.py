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
WAITS: Mapping[str, tuple[int, str]] = {
    "moco_m": (1, EIGENVALUES),
    "lorac": (1, EIGENVALUES),
    "zero_cl": (1, EIGENVALUES),
    "simwhitening": (1, CHOLESKY),
    "simtrace": (1, CHOLESKY),
    "wmse": (1, CHOLESKY),
}
"""Method -> waits of a step on one process at most, and their reason; others do not wait."""
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
    allowed, reason = WAITS.get(name, (0, ""))
    options = ["--memory-gb", "0", "--read-every-steps", "2", *SMALL_VIEWS]
    options += ["--steps", str(WARM_UP_STEPS + COUNTED_STEPS)]
    job = start_job(f"{name}/smoke", place, small_images(place), *options)
    training = Training(job)
    most = 0
    made = made_aside(job.feed.batches(0, job.num_steps), place.device)
    with closing(made) as batches:
        for step in range(job.num_steps):
            if step < WARM_UP_STEPS:
                training_step(job, training, training.method, next(batches))
            elif allowed:
                with counted_waits() as waits:
                    training_step(job, training, training.method, next(batches))
                most = max(most, len(waits))
            else:
                with forbidden_waits(place):
                    training_step(job, training, training.method, next(batches))
    return judged_waits(most, allowed, reason)


def judged_waits(most: int, allowed: int, reason: str) -> Outcome:
    """Return the outcome of a step that waited as often as given at most."""
    facts: dict[str, Fact] = {"waits": most, "allowed": allowed}
    if reason:
        facts["why"] = reason
    failures = [f"a step waits {most} times, {allowed} are known"] * (most > allowed)
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
