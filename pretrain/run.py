"""One run, from the command to a job for the loop and from the loop to the backbone file."""

import os
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Generic

import torch

from pretrain.data import BatchPlan, find_images
from pretrain.export import commit, export, versions
from pretrain.feed import Feed
from pretrain.launch import DeviceChoice, Process, claimed
from pretrain.loop import Execution, Job
from pretrain.methods import METHODS
from pretrain.parts.resnet import build_resnet
from pretrain.recipes import RECIPES, Config, Recipe


@dataclass(frozen=True, kw_only=True)
class Command(Generic[Config]):
    """One pre-training run; stopped or killed, the same command goes on where it was."""

    data: Path
    """Folder of images, flat or with a folder per class; labels are not read."""
    out: Path
    """Folder of the run: checkpoint, metrics, and the exported backbone.pt."""
    recipe: Recipe[Config]
    execution: Execution = field(default_factory=Execution)
    steps: int = 0
    """Optimizer steps instead of epochs; 0: as many as the epochs hold."""
    seed: int = 0
    device: DeviceChoice = "auto"
    workers: int = 4
    """Processes that decode images, where these do not fit into memory."""
    memory_gb: float = 2.0
    """Images that fit, decoded, into this much memory are decoded once."""
    tolerated_images: int = 0
    """Unreadable images that may be left out."""
    safetensors: bool = False
    """Write backbone.safetensors as well."""
    dry_run: bool = False
    """Say what would be done, and stop."""


def claimed_by_first(folder: Path) -> AbstractContextManager[None]:
    """The run's folder, held by its first process for all of them."""
    return claimed(folder) if os.environ.get("RANK", "0") == "0" else nullcontext()


def prepare(name: str, command: Command[Any], process: Process) -> Job:
    """Check the data, build the networks from the seed, and fix every number of the run."""
    recipe = command.recipe
    images = find_images(command.data, tolerated=command.tolerated_images)
    plan = BatchPlan(
        num_images=len(images),
        batch_size=recipe.batch_size,
        seed=command.seed,
        rank=process.rank,
        num_processes=process.num_processes,
    )
    torch.manual_seed(command.seed)  # every process builds the same networks
    backbone, feature_dim = build_resnet(recipe.arch, recipe.stem)
    module, _ = METHODS[recipe.method]
    method = module(backbone, feature_dim, recipe.config)
    num_steps = command.steps or round(recipe.epochs * plan.steps_per_epoch)
    feed = Feed(
        images=images,
        plan=plan,
        recipe=recipe.views,
        num_views=method.num_views,
        device=process.device,
        workers=command.workers,
        memory_gb=command.memory_gb,
    )
    return Job(
        name=name,
        recipe=recipe,
        method=method,
        feed=feed,
        num_steps=num_steps,
        settings={
            "recipe": name,
            **flat(asdict(recipe)),
            "num_steps": num_steps,
            "seed": command.seed,
            "precision": str(command.execution.dtype(process.device.type)),
            "data": images.fingerprint,
        },
        folder=command.out,
        process=process,
        execution=command.execution,
    )


def describe(job: Job) -> str:
    """What will be trained, where."""
    recipe, plan = job.recipe, job.feed.plan
    kept = "in memory" if job.feed.in_memory else f"read by {job.feed.workers} workers"
    return (
        f"{job.name}: {recipe.arch} ({recipe.stem} stem), {job.feed.num_views} views of "
        f"{recipe.views.size_px} px, {plan.num_images} images {kept}, batch {plan.batch_size}, "
        f"{job.num_steps} steps = {job.num_steps / plan.steps_per_epoch:g} epochs, "
        f"{job.process.num_processes} x {job.process.device.type}"
    )


def write_backbone(job: Job, command: Command[Any], steps: int) -> Path:
    """Export the backbone as it is after `steps` steps; the path of the file."""
    recipe = job.recipe
    published = flat(asdict(RECIPES[job.name]))
    settings = flat(asdict(recipe))
    made_by: dict[str, object] = {
        "method": recipe.method,
        "recipe": job.name,
        "changed": {key: value for key, value in settings.items() if value != published[key]},
        "settings": settings,
        "epochs": steps / job.feed.plan.steps_per_epoch,
        "steps": steps,
        "data": f"{command.data.name} ({len(job.feed.images)} images, "
        f"fingerprint {job.feed.images.fingerprint})",
        "seed": command.seed,
        "precision": command.execution.precision,
        "commit": commit(),
        "versions": versions(),
    }
    backbone: Any = job.method.backbone
    names = ["backbone.pt"] + ["backbone.safetensors"] * command.safetensors
    for name in names:
        export(
            command.out / name,
            backbone,
            arch=recipe.arch,
            stem=recipe.stem,
            views=replace(recipe.views, size_px=recipe.test_px or recipe.views.size_px),
            made_by=made_by,
        )
    return command.out / names[0]


def flat(nested: dict[str, Any], prefix: str = "") -> dict[str, object]:
    """Nested settings under dotted names, as plain values."""
    plain: dict[str, object] = {}
    for name, value in nested.items():
        if isinstance(value, dict):
            plain |= flat(value, f"{prefix}{name}.")
        else:
            plain[prefix + name] = list(value) if isinstance(value, tuple) else value
    return plain
