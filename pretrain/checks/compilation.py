"""Steps with compiled networks against steps without."""

import time
from contextlib import closing

import torch
from torch import Tensor

from pretrain.checks.comparison import FLOAT32_UNITS, compare, perturb, summarize
from pretrain.checks.methods import smooth
from pretrain.checks.place import Place, full_float32
from pretrain.checks.report import Fact, Outcome, judged, skipped
from pretrain.checks.started import SMALL_VIEWS, small_images, start_job
from pretrain.loop import Training, training_step, wrap_network
from pretrain.speed.timing import synchronize

NUM_STEPS = 2


def compiled(place: Place, name: str) -> Outcome:
    """Compare losses and weights of two steps in float32 with and without --compile."""
    if not place.on_gpu:
        return skipped("needs CUDA: tests compile for the CPU with aot_eager")
    return compare_compiled(place, name)


def compare_compiled(place: Place, name: str) -> Outcome:
    """Compare on any device; the compiler starts afresh before and after."""
    with full_float32():
        expected = trained(place, name)
        moved = trained(place, name, changed=True)
        torch._dynamo.reset()
        started_s = time.monotonic()
        try:
            found = trained(place, name, "--compile")
            counters = torch._dynamo.utils.counters
            graphs = counters["stats"]["unique_graphs"]
            breaks = sum(counters["graph_break"].values())
        finally:
            torch._dynamo.reset()
        compile_s = time.monotonic() - started_s
    if not graphs:
        raise RuntimeError(f"--compile has compiled nothing: {graphs} graphs, {breaks} breaks")
    failures, facts = summarize(compare(found, expected, [moved], units=FLOAT32_UNITS))
    more: dict[str, Fact] = {"compile_s": compile_s, "graphs": graphs, "breaks": breaks}
    return judged(failures, facts | more)


def trained(place: Place, name: str, *options: str, changed: bool = False) -> dict[str, Tensor]:
    """Return losses, weights and buffers after two steps of a smoke recipe.

    changed: from weights that are changed by one unit of rounding.
    """
    words = ["--steps", str(NUM_STEPS), "--precision", "float32", *SMALL_VIEWS, *options]
    job = start_job(f"{name}/smoke", place, small_images(place), *words)
    smooth(job.method)
    if changed:
        generator = torch.Generator().manual_seed(1)
        perturb(job.method.parameters(), torch.float32, generator)
    training = Training(job)
    network = wrap_network(job, training.method)
    with closing(job.feed.batches(0, NUM_STEPS)) as batches:
        for batch in batches:
            training_step(job, training, network, batch)
    synchronize(place.device)
    losses = training.window.state_dict()["loss"]
    state = {key: values.cpu() for key, values in training.method.state_dict().items()}
    return {"loss": losses, **state}
