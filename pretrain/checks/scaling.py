"""Images/s of all GPUs of the machine against those of one.

torchrun starts this module, once for each GPU.
"""

import os
import sys
from contextlib import closing
from pathlib import Path

import torch

from pretrain.checks.catalog import SCALED
from pretrain.checks.place import Place, release_memory
from pretrain.checks.processes import launch, num_processes
from pretrain.checks.report import Fact, Outcome, skipped
from pretrain.checks.started import photographs
from pretrain.checks.steps import (
    BATCHES,
    CPU_BATCH,
    RECIPES,
    effort_on,
    prepare_batch,
    repeat,
    step_job,
    whole_steps,
)
from pretrain.checks.traces import trace
from pretrain.loop import Training, training_step, wrap_network
from pretrain.running.launch import Process, join_processes

LIMIT_S = 150


def scaling(place: Place, name: str) -> Outcome:
    """Measure steps of a method on one GPU and on all, with as many images on each."""
    number = num_processes(place)
    if number == 1:
        return skipped("one GPU")
    if not place.on_gpu and name != SCALED[0]:
        return skipped(f"needs CUDA: on a CPU, {SCALED[0]} stands for all")
    images_per_gpu = BATCHES[1] if place.on_gpu else CPU_BATCH
    one = measure_share(place, place.process, name, images_per_gpu)
    release_memory(place)  # the first of the processes shares this GPU
    photographs(place, number * images_per_gpu)  # once, before the processes read them
    path = place.folder / "scaling.pt"
    words = [place.device.type, str(place.folder), name, str(images_per_gpu), str(path)]
    launch("pretrain.checks.scaling", number, words, LIMIT_S)
    together: dict[str, float] = torch.load(path)
    facts: dict[str, Fact] = {
        "recipe": recipe_on(place, name),
        "processes": number,
        "images_per_gpu": images_per_gpu,
        "images_per_s_of_one": one["images_per_s"],
        "efficiency": together["images_per_s"] / (number * one["images_per_s"]),
    }
    facts.update(together)
    return Outcome(status="measured", facts=facts)


def measure_share(
    place: Place, process: Process, name: str, images_per_gpu: int
) -> dict[str, float]:
    """Return the images/s of this process, and on a GPU waits and milliseconds of collectives."""
    batch_size = images_per_gpu * process.num_processes
    job = step_job(place, recipe_on(place, name), batch_size, process)
    prepared, _ = prepare_batch(job)
    training = Training(job)
    network = wrap_network(job, training.method)
    rate, _ = whole_steps(training, network, prepared, effort_on(place))
    if not place.on_gpu:
        return {"images_per_s": rate}
    with closing(repeat(job, prepared)) as batches:
        counts = trace(lambda: training_step(job, training, network, next(batches)), 2)
    return {
        "images_per_s": rate,
        "ms_collectives": counts.collectives_ms,
        "waits": counts.waits,
        "launches": counts.launches,
    }


def recipe_on(place: Place, name: str) -> str:
    """Return the recipe that stands for a method on a device."""
    return RECIPES[name] if place.on_gpu else f"{name}/smoke"


def main(device: str, folder: str, name: str, images_per_gpu: str, path: str) -> None:
    """Measure together with the other processes; the first writes images/s of all."""
    with join_processes("cuda" if device == "cuda" else "cpu") as process:
        place = Place(device=process.device, folder=Path(folder))
        own = measure_share(place, process, name, int(images_per_gpu))
        total = torch.tensor(own["images_per_s"], dtype=torch.float64, device=process.device)
        torch.distributed.all_reduce(total)
        if process.is_main:
            torch.save(own | {"images_per_s": float(total)}, path)


if __name__ == "__main__":
    main(*sys.argv[1:])
    sys.stderr.flush()
    # torch 2.15 keeps gloo's threads after DDP was used, and they may abort a normal exit
    os._exit(0)
