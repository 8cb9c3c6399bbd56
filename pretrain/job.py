"""From the command of a run to the job that the loop executes."""

import os
from collections import Counter
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
from pretrain.running.processes import Process, tf32_convolutions
from pretrain.settings import SettingsError, check_cpu, check_views
from pretrain.step_memory import memory_needs

MOCO_NORM_GROUPS = 8
"""Groups of shuffled batch norm in MoCo's code, for papers that do not say how many they have."""
MOST_WORKERS = 32
"""Loader processes beyond which one GPU gains nothing."""


@dataclass(frozen=True, kw_only=True)
class Job:
    """One run, ready for the loop."""

    name: str
    command: Command[Any]
    method: Method
    feed: Feed
    num_steps: int
    settings: dict[str, object]
    """Settings that a checkpoint must agree with."""
    process: Process

    @property
    def recipe(self) -> Recipe[Any]:
        """Return the recipe with the changes of the command."""
        return self.command.recipe

    @property
    def published(self) -> dict[str, object]:
        """Return the settings of the recipe without the changes of the command."""
        return flatten(asdict(RECIPES[self.name]))

    @property
    def checkpoint_path(self) -> Path:
        """Return the file from which the run resumes."""
        return self.command.out / "checkpoint.pt"

    @property
    def dtype(self) -> torch.dtype:
        """Return the type of the networks' matrix products."""
        return self.command.execution.network_dtype(self.process.device.type)

    @property
    def tf32(self) -> bool:
        """Return whether the networks' convolutions run in TF32."""
        on_gpu = self.process.device.type == "cuda"
        return on_gpu and self.dtype == torch.float32 and tf32_convolutions()

    def is_read_step(self, step: int) -> bool:
        """Return whether the metrics are read after `step` steps."""
        return step == self.num_steps or step % self.command.execution.read_every_steps == 0

    def is_snapshot_step(self, step: int) -> bool:
        """Return whether training pauses after `step` steps for a snapshot."""
        every = self.command.snapshot_epochs * self.feed.plan.steps_per_epoch
        return every > 0 and step % every == 0


def planned_memory(command: Command[Any]) -> int:
    """Return the bytes of a step, before processes join; 0 if neither a GPU nor a plan asks."""
    cuda = command.device != "cpu" and torch.cuda.is_available()
    if not (cuda or command.dry_run):
        return 0
    dtype = command.execution.network_dtype("cuda" if cuda else "cpu")
    num_images = max(1, command.recipe.batch_size // int(os.environ.get("WORLD_SIZE", "1")))
    return memory_needs(_method(command), command.recipe, num_images, dtype)


def prepare(name: str, command: Command[Any], process: Process, images: TrainingImages) -> Job:
    """Check settings and data, build the networks from the seed, and return the job."""
    recipe, execution, device = command.recipe, command.execution, process.device
    # a folder of this name, such as W&B itself makes, has no origin
    if command.wandb and ((package := find_spec("wandb")) is None or package.origin is None):
        raise SettingsError("--wandb needs a package that is not installed: pip install wandb")
    plan = BatchPlan(
        num_images=len(images),
        batch_size=recipe.batch_size,
        seed=command.seed,
        rank=process.rank,
        num_processes=process.num_processes,
    )
    method = _method(command)
    needs = method.batch_needs(recipe.config)
    require_counts(method, images)
    check_cpu(recipe, method.views, execution, device.type)
    check_views(recipe.views, method.views, has_styles=command.style_bank is not None)
    bad_images = BadImages(
        images=images,
        path=command.out / FILE_NAME,
        seed=command.seed,
        tolerated=command.tolerated_images,
    )
    bad_images.check_recorded()
    feed = Feed(
        images=images,
        plan=plan,
        recipe=recipe.views,
        views=method.views,
        device=device,
        workers=usual_workers() if command.workers is None else command.workers,
        memory_gb=command.memory_gb,
        uses_labels=method.num_classes > 0,
        uses_indices=method.num_images > 0,
        styles=find_styles(command.style_bank, images) if command.style_bank else (),
        colors_on_device=command.colors_in == "device",
        bad_images=bad_images,
    )
    num_steps = command.steps or round(recipe.epochs * plan.steps_per_epoch)
    if recipe.epochs and not num_steps:
        raise SettingsError(
            f"--epochs {recipe.epochs:g} of {plan.steps_per_epoch} steps make a run of no step; "
            "choose more"
        )
    settings = {
        "recipe": name,
        **flatten(asdict(recipe)),
        "num_steps": num_steps,
        "seed": command.seed,
        "precision": str(execution.network_dtype(device.type)),
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


def usual_workers() -> int:
    """Return this process's share of the cores that the run may use."""
    local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return min(max(1, len(os.sched_getaffinity(0)) // local), MOST_WORKERS)


def _method(command: Command[Any]) -> Method:
    """Build the networks from the seed; SettingsError if the settings contradict each other."""
    recipe = command.recipe
    torch.manual_seed(command.seed)  # every process builds the same networks
    try:
        backbone, feature_dim = build_resnet(recipe.arch, recipe.stem)
        method = METHODS[recipe.method](backbone, feature_dim, recipe.config)
    except ValueError as error:
        raise SettingsError(str(error)) from error
    if command.execution.checkpoint_activations:
        checkpoint_activations(method)
    return method


def require_counts(method: Method, images: TrainingImages) -> None:
    """Raise a DataError if the data have not as many classes or images as a method expects."""
    for kind, expected in (("classes", method.num_classes), ("images", method.num_images)):
        # a flat folder has no classes, and needs none where none are expected
        found = len(images.classes if kind == "classes" and expected else images.names)
        if expected and found != expected:
            raise DataError(
                f"{images.folder} holds {found} {kind} and the recipe expects {expected}; "
                f"pass --num-{kind} {found} or another folder"
            )


def texture(views: ViewRecipe, styles: tuple[Path, ...]) -> str:
    """Return how views change their texture, for the record; empty where they do not."""
    if views.texture_probability == 0:
        return ""
    if not styles:
        return "randconv_luma"
    names = ", ".join(style.name for style in styles)
    return printable(f"style bank {styles[0].parent.name} of {names}")


def printable(name: str) -> str:
    """Return a name of a file with escapes in place of bytes that are not UTF-8, for records."""
    return name.encode(errors="backslashreplace").decode()


def describe(job: Job) -> str:
    """Return one line about the run: networks, views, data, length, processes and arithmetic."""
    recipe, plan, device = job.recipe, job.feed.plan, job.process.device.type
    kept = "in memory" if job.feed.in_memory else f"read by {job.feed.workers} workers"
    counts = Counter(view_recipe.size_px for view_recipe in job.feed.recipes)
    sizes = (f"{count} x {size_px} px" for size_px, count in counts.items())
    return (
        f"{job.name}: {recipe.arch} ({recipe.stem} stem), views {' + '.join(sizes)}, "
        f"{plan.num_images} images {kept}, batch {plan.batch_size}, "
        f"{job.num_steps} steps = {job.num_steps / plan.steps_per_epoch:g} epochs, "
        f"{job.process.num_processes} x {device}, "
        f"{dtype_name(job.dtype)}{' with convolutions in TF32' * job.tf32}"
    )


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def cautions(job: Job) -> list[str]:
    """Return warnings that matter to readers of the results, one sentence each."""
    images = job.feed.images
    notes = [
        f"{len(names)} {what}: {_first_names(names)}"
        for names, what in (
            (images.repeated, "linked folders are read once, under another name"),
            (images.unreadable, "unreadable images are left out"),
        )
        if names
    ]
    notes += images.remarks
    if job.feed.bad_images is not None and (names := job.feed.bad_images.names()):
        notes.append(
            f"{len(names)} images that do not decode are replaced by others: {_first_names(names)}"
        )
    needs, num_processes = job.method.batch_needs(job.recipe.config), job.process.num_processes
    if needs.bn_splits:
        groups = num_processes * needs.bn_splits
        caution = norm_caution(
            groups, job.recipe.norm_groups, num_processes, batch_size=job.recipe.batch_size
        )
        notes += filter(None, [caution])
    notes += job.method.cautions(job.recipe.batch_size)
    if texture(job.recipe.views, job.feed.styles) == "randconv_luma":
        notes.append(
            "textures by randconv_luma, a stand-in for the paper's style transfer; "
            "pass --style-bank for prepared styles"
        )
    return notes


def norm_caution(groups: int, published: int, num_processes: int, *, batch_size: int) -> str:
    """Return a warning if shuffled batch norm has other groups than the paper's; else nothing.

    published: groups of the paper, 0 if it does not say how many.
    """
    wanted = published or MOCO_NORM_GROUPS
    advice = (
        f"pass --bn-splits {wanted // num_processes}"
        if wanted % num_processes == 0
        else f"use a number of processes that divides {wanted}"
    )
    if batch_size % wanted or batch_size < 2 * wanted:  # groups are equal and have two images
        advice += f" and a --batch-size of {2 * wanted} or a larger multiple of {wanted}"
    if published and groups != published:
        return (
            f"groups of shuffled batch norm (processes times --bn-splits): {groups}, the paper's "
            f"{published}, so tables will give this run no verdict; {advice}"
        )
    if groups == 1:
        return (
            "shuffled batch norm has one group, which tells which key belongs to a query; "
            f"{advice}, as in MoCo's code"
        )
    return ""


def _first_names(names: list[str] | tuple[str, ...]) -> str:
    return f"{', '.join(names[:10])}{', ...' if len(names) > 10 else ''}"


def flatten(nested: dict[str, Any], prefix: str = "") -> dict[str, object]:
    """Return nested settings as plain values under dotted names."""
    plain: dict[str, object] = {}
    for name, value in nested.items():
        if isinstance(value, dict):
            plain |= flatten(value, f"{prefix}{name}.")
        else:
            plain[prefix + name] = list(value) if isinstance(value, tuple) else value
    return plain
