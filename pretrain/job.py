"""Turns the command of a run into a job for the loop."""

import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from pretrain.command import Command
from pretrain.data.bad_images import FILE_NAME, BadImages
from pretrain.data.feed import Feed
from pretrain.data.images import BatchPlan, DataError, TrainingImages
from pretrain.data.listing import find_styles
from pretrain.data.views import ViewRecipe
from pretrain.method import Method
from pretrain.methods import METHODS
from pretrain.parts.resnet import build_resnet, checkpoint_activations
from pretrain.recipes import RECIPES, Recipe
from pretrain.running.host_memory import num_cores
from pretrain.running.processes import Process, tf32_convolutions
from pretrain.settings import SettingsError, check_execution, check_view_options, check_views
from pretrain.step_memory import memory_needs

MOCO_NORM_GROUPS = 8
"""Groups of shuffled batch norm in MoCo's code.
Used if a paper does not state its number of groups."""
MAX_WORKERS = 32
"""More loader processes than this do not speed up one GPU."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """One run, ready for the loop."""

    name: str
    command: Command[Any]
    method: Method
    feed: Feed
    num_steps: int
    settings: dict[str, object]
    """Settings by name.
    A run resumes only from a checkpoint with the same settings."""
    process: Process

    @property
    def recipe(self) -> Recipe[Any]:
        """Return the recipe with the command's changes."""
        return self.command.recipe

    @property
    def published(self) -> dict[str, object]:
        """Return the settings of the recipe without the command's changes."""
        return flatten(asdict(RECIPES[self.name]))

    @property
    def checkpoint_path(self) -> Path:
        """Return the file from which the run resumes."""
        return self.command.out / "checkpoint.pt"

    @property
    def dtype(self) -> torch.dtype:
        """Return the dtype of the networks' matrix products."""
        return self.command.network_dtype(self.process.device.type)

    @property
    def tf32(self) -> bool:
        """Return whether the networks' convolutions run in TF32."""
        on_gpu = self.process.device.type == "cuda"
        return on_gpu and self.dtype == torch.float32 and tf32_convolutions()

    def is_read_step(self, step: int) -> bool:
        """Return whether the metrics are read after `step` steps."""
        return step == self.num_steps or step % self.command.read_every_steps == 0

    def is_snapshot_step(self, step: int) -> bool:
        """Return whether training pauses after `step` steps for a snapshot."""
        every = self.command.snapshot_epochs * self.feed.plan.steps_per_epoch
        return every > 0 and step % every == 0


def planned_memory(command: Command[Any]) -> int:
    """Return the bytes of memory that a step needs.

    0 without a GPU, unless --dry-run is given.
    """
    cuda = command.device != "cpu" and torch.cuda.is_available()
    if not (cuda or command.dry_run):
        return 0
    dtype = command.network_dtype("cuda" if cuda else "cpu")
    num_images = max(1, command.recipe.batch_size // int(os.environ.get("WORLD_SIZE", "1")))
    return memory_needs(_method(command), command.recipe, num_images, dtype)


def prepare(name: str, command: Command[Any], process: Process, images: TrainingImages) -> Job:
    """Check settings and data, and build the networks and the job."""
    recipe, device = command.recipe, process.device
    # a folder named wandb, such as the one that W&B creates, has no origin
    if command.wandb and ((package := find_spec("wandb")) is None or package.origin is None):
        raise SettingsError("--wandb requires a package that is not installed: pip install wandb")
    plan = BatchPlan(
        num_images=len(images),
        batch_size=recipe.batch_size,
        seed=command.seed,
        rank=process.rank,
        num_processes=process.num_processes,
    )
    method = _method(command)
    needs = method.batch_needs(recipe.config)
    if method.num_classes:  # otherwise, the folder may be flat, without classes
        _check_count(images.folder, "classes", len(images.classes), method.num_classes)
    if method.num_images:
        _check_count(images.folder, "images", len(images.names), method.num_images)
    check_execution(command, method.views, device.type)
    check_view_options(recipe.views, RECIPES[name].views, method.views)
    check_views(recipe.views, method.views, has_styles=command.style_bank is not None)
    bad_images = BadImages(
        images=images,
        path=command.out / FILE_NAME,
        seed=command.seed,
        tolerated=command.tolerated_images,
    )
    if process.is_main:
        bad_images.check_recorded()
    feed = Feed(
        images=images,
        plan=plan,
        recipe=recipe.views,
        views=method.views,
        device=device,
        workers=min(num_cores(), MAX_WORKERS) if command.workers is None else command.workers,
        memory_gb=command.memory_gb,
        uses_labels=method.num_classes > 0,
        uses_indices=method.num_images > 0,
        styles=find_styles(command.style_bank) if command.style_bank else (),
        colors_on_device=command.colors_in == "device",
        bad_images=bad_images,
    )
    num_steps = command.steps or round(recipe.epochs * plan.steps_per_epoch)
    if recipe.epochs and not num_steps:
        raise SettingsError(
            f"--epochs {recipe.epochs:g} of {plan.steps_per_epoch} steps make a run of no step: "
            "choose more"
        )
    settings = {
        "recipe": name,
        **flatten(asdict(recipe)),
        "num_steps": num_steps,
        "seed": command.seed,
        "precision": str(command.network_dtype(device.type)),
        "batch_norm_groups": needs.norm_groups(process.num_processes),
        "local_prior_images": recipe.batch_size // process.num_processes * needs.local_prior,
        "data": images.fingerprint,
        "texture": texture(recipe.views, feed.styles),
        "colors_in": command.colors_in,
    }
    return Job(
        name=name,
        command=command,
        method=method,
        feed=feed,
        num_steps=num_steps,
        settings=settings,
        process=process,
    )


def _check_count(folder: Path, kind: str, count: int, expected: int) -> None:
    if count != expected:
        raise DataError(
            f"{folder} contains {count} {kind} and the recipe expects {expected}: "
            f"pass --num-{kind} {count} or another folder"
        )


def _method(command: Command[Any]) -> Method:
    """Build the networks from the seed.

    Raises SettingsError if settings contradict each other.
    """
    recipe = command.recipe
    torch.manual_seed(command.seed)  # every process builds the same networks
    try:
        backbone, feature_dim = build_resnet(recipe.arch, recipe.stem)
        method = METHODS[recipe.method](backbone, feature_dim, recipe.config)
    except ValueError as error:
        raise SettingsError(str(error)) from error
    if command.checkpoint_activations:
        checkpoint_activations(method)
    return method


def texture(views: ViewRecipe, styles: tuple[Path, ...]) -> str:
    """Return how the views change textures; "" if they do not."""
    if views.texture_probability == 0:
        return ""
    if not styles:
        return "randconv_luma"
    names = ", ".join(style.name for style in styles)
    return f"style bank {styles[0].parent.name} of {names}"


def describe(job: Job) -> str:
    """Return one line about the run.

    It names the networks, views, data, length, processes and precision.
    """
    recipe, plan, device = job.recipe, job.feed.plan, job.process.device.type
    source = "in memory" if job.feed.in_memory else f"read by {job.feed.workers} workers"
    precision = dtype_name(job.dtype)
    if job.tf32:
        precision += " with convolutions in TF32"
    counts = Counter(view_recipe.size_px for view_recipe in job.feed.recipes)
    sizes = (f"{count} x {size_px} px" for size_px, count in counts.items())
    return (
        f"{job.name}: {recipe.arch} ({recipe.stem} stem), views {' + '.join(sizes)}, "
        f"{plan.num_images} images {source}, batch {plan.batch_size}, "
        f"{job.num_steps} steps = {job.num_steps / plan.steps_per_epoch:g} epochs, "
        f"{job.process.num_processes} x {device}, {precision}"
    )


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def cautions(job: Job) -> list[str]:
    """Return warnings for readers of the results, one sentence each."""
    images, replaced = job.feed.images, list(job.feed.bad_images.recorded())
    notes = [images.remark] if images.remark else []
    if images.unreadable:
        names = _first_names(images.unreadable)
        notes.append(f"{len(images.unreadable)} unreadable images are left out: {names}")
    if replaced:
        names = _first_names(replaced)
        notes.append(f"{len(replaced)} images that do not decode are replaced by others: {names}")
    needs, num_processes = job.method.batch_needs(job.recipe.config), job.process.num_processes
    if needs.bn_splits:
        groups = num_processes * needs.bn_splits
        notes += norm_cautions(groups, job.recipe.norm_groups, num_processes)
    notes += job.method.cautions(job.recipe.batch_size)
    if texture(job.recipe.views, job.feed.styles) == "randconv_luma":
        notes.append(
            "textures by randconv_luma, which replaces the paper's style transfer; "
            "pass --style-bank to use prepared styles"
        )
    return notes


def norm_cautions(groups: int, published: int, num_processes: int) -> list[str]:
    """Return a warning about groups of shuffled batch norm, if one is due.

    published: the paper's number of groups; 0 if it is not stated.
    """
    recommended = published or MOCO_NORM_GROUPS
    if published and groups != published:
        text = f"but the paper has {published}, so tables will give this run no verdict"
    elif groups == 1:
        text = "which reveals the key of each query"
    else:
        return []
    advice = f"pass --bn-splits {recommended // num_processes}"
    if recommended % num_processes:
        advice = f"use a number of processes that divides {recommended}"
    return [
        f"{groups} groups of shuffled batch norm (processes times --bn-splits), {text}; {advice}, "
        "with a --batch-size of at least two images per group"
    ]


def _first_names(names: Sequence[str]) -> str:
    return f"{', '.join(names[:10])}{', ...' if len(names) > 10 else ''}"


def flatten(nested: dict[str, Any], prefix: str = "") -> dict[str, object]:
    """Return nested settings as plain values with dotted names."""
    plain: dict[str, object] = {}
    for name, value in nested.items():
        if isinstance(value, dict):
            plain |= flatten(value, f"{prefix}{name}.")
        else:
            plain[prefix + name] = list(value) if isinstance(value, tuple) else value
    return plain
