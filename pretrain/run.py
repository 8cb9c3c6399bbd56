"""One run, from the command to a job for the loop and from the loop to the backbone file."""

import os
from contextlib import AbstractContextManager, nullcontext
from dataclasses import MISSING, asdict, fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from pretrain.command import Command
from pretrain.data.feed import Feed
from pretrain.data.images import (
    BatchPlan,
    ChangedError,
    DataError,
    StyleBank,
    TrainingImages,
    find_styles,
)
from pretrain.data.kept_listing import kept_or_listed
from pretrain.data.last_writes import LastWrites
from pretrain.data.views import ViewRecipe
from pretrain.export import commit, export, export_encoder, versions
from pretrain.launch import folder_lock
from pretrain.loop import Job
from pretrain.memory import MemoryNeeds, memory_needs
from pretrain.method import Method
from pretrain.methods import METHODS
from pretrain.metrics import INSTALL, is_installed, means_after
from pretrain.parts.heads import BranchedResNet
from pretrain.parts.recompute import checkpoint_activations
from pretrain.parts.resnet import build_resnet
from pretrain.precision import network_dtype, tf32_convolutions
from pretrain.recipes import RECIPES, Recipe
from pretrain.running.processes import Process
from pretrain.settings import (
    SettingsError,
    batch_norm_groups,
    check_batch,
    check_compile,
    check_schedule,
    check_small_maps,
    check_views,
    count_steps,
    local_prior_images,
)

MOST_WORKERS = 32
"""Loader processes beyond which one GPU gains nothing."""


def main_process_lock(folder: Path) -> AbstractContextManager[None]:
    """Return a lock on the run's folder, which the first process holds for all of them."""
    return folder_lock(folder) if os.environ.get("RANK", "0") == "0" else nullcontext()


def list_images(command: Command[Any]) -> TrainingImages:
    """Check the settings, then return the images of a command, before its processes join.

    To list a million images on a slow disk may take longer than processes wait for each other.
    """
    check_schedule(command.recipe)
    check_batch(command.recipe, int(os.environ.get("WORLD_SIZE", "1")))
    return kept_or_listed(command.data, tolerated=command.tolerated_images)


def planned_memory(command: Command[Any]) -> MemoryNeeds | None:
    """Return what a step needs, before processes join; None if neither a GPU nor a plan asks."""
    cuda = command.device != "cpu" and torch.cuda.is_available()
    if not (cuda or command.dry_run):
        return None
    dtype = network_dtype(command.execution.precision, "cuda" if cuda else "cpu")
    num_images = command.recipe.batch_size // int(os.environ.get("WORLD_SIZE", "1"))
    return memory_needs(_method(command), command.recipe, num_images, dtype)


def prepare(
    name: str, command: Command[Any], process: Process, images: TrainingImages | None = None
) -> Job:
    """Check settings and data, build the networks from the seed, and return the job.

    The images are listed here if they were not before.
    """
    recipe = command.recipe
    check_compile(command.execution, process.device.type)
    if command.wandb and not is_installed():
        raise SettingsError(INSTALL)
    check_schedule(recipe)
    check_batch(recipe, process.num_processes)
    if images is None:
        images = kept_or_listed(command.data, tolerated=command.tolerated_images)
    plan = BatchPlan(
        num_images=len(images),
        batch_size=recipe.batch_size,
        seed=command.seed,
        rank=process.rank,
        num_processes=process.num_processes,
    )
    method = _method(command)
    require_counts(method, images)
    check_small_maps(recipe, method.views, command.execution, process.device.type)
    check_views(recipe.views, method.views, has_styles=command.style_bank is not None)
    num_steps = count_steps(recipe, command.steps, plan)
    feed = Feed(
        images=images,
        plan=plan,
        recipe=recipe.views,
        views=method.views,
        device=process.device,
        workers=usual_workers() if command.workers is None else command.workers,
        memory_gb=command.memory_gb,
        uses_labels=method.uses_labels,
        uses_indices=method.uses_indices,
        styles=None if command.style_bank is None else find_styles(command.style_bank, images),
        colors_in_workers=command.colors_in == "workers"
        or (command.colors_in == "auto" and process.device.type == "cpu"),
    )
    return Job(
        name=name,
        recipe=recipe,
        method=method,
        feed=feed,
        num_steps=num_steps,
        settings={"recipe": name} | _lasting_settings(command, process, feed, num_steps),
        defaults=flatten_defaults(recipe),
        folder=command.out,
        process=process,
        execution=command.execution,
        snapshot_epochs=command.snapshot_epochs,
        wandb=command.wandb,
    )


def usual_workers() -> int:
    """Return this process's share of the cores that the run may use."""
    local = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
    return min(max(1, len(os.sched_getaffinity(0)) // local), MOST_WORKERS)


def _method(command: Command[Any]) -> Method:
    """Build the networks from the seed; SettingsError if the settings contradict each other."""
    recipe = command.recipe
    torch.manual_seed(command.seed)  # every process builds the same networks
    module, _ = METHODS[recipe.method]
    try:
        backbone, feature_dim = build_resnet(recipe.arch, recipe.stem)
        method: Method = module(backbone, feature_dim, recipe.config)
    except ValueError as error:
        raise SettingsError(str(error)) from error
    if command.execution.checkpoint_activations:
        checkpoint_activations(method)
    return method


def _lasting_settings(
    command: Command[Any], process: Process, feed: Feed, num_steps: int
) -> dict[str, object]:
    """Return the settings that must stay when a run is resumed."""
    recipe = command.recipe
    return {
        **flatten(asdict(recipe)),
        "num_steps": num_steps,
        "seed": command.seed,
        "precision": str(network_dtype(command.execution.precision, process.device.type)),
        "batch_norm_groups": batch_norm_groups(recipe, process.num_processes),
        "local_prior_images": local_prior_images(recipe, process.num_processes),
        "data": feed.images.fingerprint,
        "texture": texture(recipe.views, feed.styles),
        "views_made": feed.view_source,
    }


def require_counts(method: Method, images: TrainingImages) -> None:
    """Raise a DataError if the data have not as many classes or images as a method expects."""
    if method.uses_labels and len(images.classes) != method.num_classes:
        raise DataError(
            f"{images.folder} holds {len(images.classes)} classes and the recipe expects "
            f"{method.num_classes}; pass --num-classes {len(images.classes)} or another folder"
        )
    if method.uses_indices and len(images) != method.num_images:
        raise DataError(
            f"{images.folder} holds {len(images)} images and the recipe expects "
            f"{method.num_images}; pass --num-images {len(images)} or another folder"
        )


def texture(views: ViewRecipe, styles: StyleBank | None) -> str:
    """Return how views change their texture, for the record; empty where they do not."""
    if views.texture_probability == 0:
        return ""
    if styles is None:
        return "randconv_luma"
    return printable(f"style bank {styles.folder.name} of {', '.join(styles.names)}")


def printable(name: str) -> str:
    """Return a name of a file with escapes in place of bytes that are not UTF-8, for records."""
    return name.encode(errors="backslashreplace").decode()


def describe(job: Job) -> str:
    """Return one line about the run: networks, views, data, length and processes."""
    recipe, plan = job.recipe, job.feed.plan
    kept = "in memory" if job.feed.in_memory else f"read by {job.feed.workers} workers"
    views = " and ".join(
        f"{rows.stop - rows.start} view{'s' * (rows.stop - rows.start > 1)} of {group.size_px} px"
        for group, rows in job.feed.groups
    )
    return (
        f"{job.name}: {recipe.arch} ({recipe.stem} stem), {views}, "
        f"{plan.num_images} images of {_folders(job.feed.images)} {kept}, batch {plan.batch_size}, "
        f"{job.num_steps} steps = {job.num_steps / plan.steps_per_epoch:g} epochs, "
        f"{job.process.num_processes} x {job.process.device.type}, {arithmetic(job)}"
    )


def arithmetic(job: Job) -> str:
    """Return the arithmetic of the networks, such as "float32 with convolutions in TF32"."""
    precision, device = job.execution.precision, job.process.device.type
    name = dtype_name(network_dtype(precision, device))
    return f"{name} with convolutions in TF32" if tf32_convolutions(precision, device) else name


def dtype_name(dtype: torch.dtype) -> str:
    """Return the name of a type, such as bfloat16."""
    return str(dtype).removeprefix("torch.")


def _folders(images: TrainingImages) -> str:
    return "1 folder" if images.num_folders == 1 else f"{images.num_folders} folders"


def cautions(job: Job) -> list[str]:
    """Return warnings that matter to readers of the results, one sentence each."""
    notes = []
    repeated = [str(link.relative_to(job.feed.images.folder)) for link in job.feed.images.repeated]
    if repeated:
        notes.append(
            f"{len(repeated)} linked folders are read under another name and left out here, since "
            f"each folder is read once: {', '.join(repeated[:10])}"
            f"{', ...' if len(repeated) > 10 else ''}"
        )
    if job.process.num_processes == 1 and job.method.batch_needs(job.recipe.config).bn_splits == 1:
        notes.append(
            "one process and bn_splits 1: batch norm can tell which key belongs to a query; "
            "pass --bn-splits 8 to stand for eight processes"
        )
    notes += job.method.cautions(job.recipe.batch_size)
    if texture(job.recipe.views, job.feed.styles) == "randconv_luma":
        notes.append(
            "textures by randconv_luma, a stand-in for the paper's style transfer; "
            "pass --style-bank for prepared styles"
        )
    return notes


def backbone_origin(job: Job, command: Command[Any], steps: int) -> dict[str, object]:
    """Return the origin of the backbone after `steps` steps: settings, data, versions."""
    recipe, device = job.recipe, job.process.device.type
    published = flatten(asdict(RECIPES[job.name]))
    settings = flatten(asdict(recipe))
    return {
        "method": recipe.method,
        "recipe": job.name,
        "table_row": recipe.table_row,
        "changed": {key: value for key, value in settings.items() if value != published[key]},
        "settings": settings,
        "epochs": steps / job.feed.plan.steps_per_epoch,
        "steps": steps,
        "data": f"{printable(command.data.name)} ({len(job.feed.images)} images, "
        f"fingerprint {job.feed.images.fingerprint})",
        "seed": command.seed,
        "precision": dtype_name(network_dtype(command.execution.precision, device)),
        "tf32_convolutions": tf32_convolutions(command.execution.precision, device),
        "num_processes": job.process.num_processes,  # those of the last start
        "images_per_process": recipe.batch_size // job.process.num_processes,
        "batch_norm_groups": batch_norm_groups(recipe, job.process.num_processes),
        "texture": texture(recipe.views, job.feed.styles),
        "views_made": job.feed.view_source,
        "commit": commit(),
        "versions": versions(),
    }


def write_backbone(job: Job, command: Command[Any], steps: int) -> Path:
    """Export the backbone as it is after `steps` steps; return the path of backbone.pt.

    A method with a projector also gives encoder.pt. A finished run that is started again takes no
    step and writes both anew.
    """
    recipe = job.recipe
    networks = exported_networks(recipe.arch, job.method.get_submodule("backbone"))
    suffixes = [".pt"] + [".safetensors"] * command.safetensors
    made_by = backbone_origin(job, command, steps)
    made_by["last_epoch"] = means_after(job.folder, steps - job.feed.plan.steps_per_epoch)
    for name, (arch, network) in networks.items():
        for suffix in suffixes:
            export(
                command.out / f"{name}{suffix}",
                network,
                arch=arch,
                stem=recipe.stem,
                views=evaluation_views(recipe),
                made_by=made_by,
            )
    if job.method.projectors:
        arch, network = networks["backbone"]
        export_encoder(
            command.out / "encoder.pt",
            network,
            job.method.projectors,
            arch=arch,
            stem=recipe.stem,
            views=evaluation_views(recipe),
            made_by=made_by,
        )
    return command.out / "backbone.pt"


def write_snapshot(job: Job, command: Command[Any], steps: int) -> Path:
    """Export the backbone after `steps` steps, all heads together; return the path."""
    recipe = job.recipe
    folder = command.out / "snapshots"
    folder.mkdir(exist_ok=True)
    path = folder / f"epoch{steps // job.feed.plan.steps_per_epoch:04d}.pt"
    arch, network = exported_networks(recipe.arch, job.method.get_submodule("backbone"))["backbone"]
    export(
        path,
        network,
        arch=arch,
        stem=recipe.stem,
        views=evaluation_views(recipe),
        made_by=backbone_origin(job, command, steps),
    )
    return path


def require_same_images(job: Job, before: LastWrites) -> None:
    """Raise a ChangedError if an image was changed since the run began to read them."""
    if names := before.changed():
        listed = f"{', '.join(names[:10])}{', ...' if len(names) > 10 else ''}"
        raise ChangedError(
            f"{len(names)} images or folders in {job.feed.images.folder} were changed while the "
            f"run read them ({listed}), so it may have seen either content, and no backbone is "
            f"written. Delete {job.checkpoint_path} to train anew, or start the same command again "
            f"to accept what was trained"
        )


def evaluation_views(recipe: Recipe[Any]) -> ViewRecipe:
    """Return the recipe of views with the image size of tests."""
    return replace(recipe.views, size_px=recipe.test_px or recipe.views.size_px)


def exported_networks(arch: str, backbone: nn.Module) -> dict[str, tuple[str, nn.Module]]:
    """Return file name -> (architecture, network).

    A backbone with several heads gives two files: all heads together, and the first alone.
    """
    if not isinstance(backbone, BranchedResNet):
        return {"backbone": (arch, backbone)}
    return {
        "backbone": (f"{arch}-heads{len(backbone.layer4)}", backbone),
        "backbone-head0": (arch, backbone.head(0)),
    }


def flatten_defaults(options: Any, prefix: str = "") -> dict[str, object]:
    """Return the defaults of a dataclass and those in it, as far as there are any."""
    plain: dict[str, object] = {}
    for spec in fields(options):
        value = getattr(options, spec.name)
        if is_dataclass(value):
            plain |= flatten_defaults(value, f"{prefix}{spec.name}.")
        elif spec.default is not MISSING:
            default = spec.default
            plain[prefix + spec.name] = list(default) if isinstance(default, tuple) else default
    return plain


def flatten(nested: dict[str, Any], prefix: str = "") -> dict[str, object]:
    """Return nested settings as plain values under dotted names."""
    plain: dict[str, object] = {}
    for name, value in nested.items():
        if isinstance(value, dict):
            plain |= flatten(value, f"{prefix}{name}.")
        else:
            plain[prefix + name] = list(value) if isinstance(value, tuple) else value
    return plain
