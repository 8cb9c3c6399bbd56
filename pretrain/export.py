"""The exported files of a job, from which evaluation starts."""

import platform
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy
import torch
import torchvision
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm

from pretrain import checkpoint
from pretrain.job import Job, dtype_name, flatten
from pretrain.metrics import mean_metrics_after
from pretrain.parts.resnet import BranchedResNet
from pretrain.recipes import Recipe
from pretrain.running.source import commit

FORMAT = "ssl-backbone/1"
ENCODER_FORMAT = "ssl-encoder/1"


def backbone_origin(job: Job, steps: int) -> dict[str, object]:
    """Return the origin of the backbone after `steps` steps: settings, data, versions."""
    recipe, images = job.recipe, job.feed.images
    settings, published = flatten(asdict(recipe)), job.published
    extra_settings = ("batch_norm_groups", "texture", "colors_in")
    bad_images = f", {len(images.unreadable)} unreadable" if images.unreadable else ""
    if replaced := job.feed.bad_images.recorded():
        bad_images += f", {len(replaced)} replaced"
    return {
        "method": recipe.method,
        "recipe": job.name,
        "table_row": recipe.table_row,
        "changed": {key: value for key, value in settings.items() if value != published[key]},
        "settings": settings,
        "epochs": steps / job.feed.plan.steps_per_epoch,
        "steps": steps,
        "data": f"{job.command.data.absolute().name} ({len(images)} images"
        f"{bad_images}, fingerprint {images.fingerprint})",
        "seed": job.command.seed,
        "precision": dtype_name(job.dtype),
        "tf32_convolutions": job.tf32,
        "num_processes": job.process.num_processes,  # of the last start
        "images_per_process": recipe.batch_size // job.process.num_processes,
        **{name: job.settings[name] for name in extra_settings},
        "commit": commit() or "unknown",
        "versions": versions(),
    }


def write_backbone(job: Job, steps: int) -> Path:
    """Export the backbone after `steps` steps; return the path of backbone.pt.

    A method with a projector also gets encoder.pt. Restarting a finished run takes no step and
    writes both files again.
    """
    last_epoch = mean_metrics_after(job.command.out, steps - job.feed.plan.steps_per_epoch)
    made_by = backbone_origin(job, steps) | {"last_epoch": last_epoch}
    networks = exported_networks(job)
    for name, (arch, network) in networks.items():
        export(job.command.out / f"{name}.pt", network, arch, job.recipe, made_by)
    if projectors := job.method.projectors:
        arch, network = networks["backbone"]
        export(job.command.out / "encoder.pt", network, arch, job.recipe, made_by, projectors)
    return job.command.out / "backbone.pt"


def write_snapshot(job: Job, steps: int) -> None:
    """Export the backbone after `steps` steps, with all heads."""
    epoch = steps // job.feed.plan.steps_per_epoch
    arch, network = exported_networks(job)["backbone"]
    path = job.command.out / "snapshots" / f"epoch{epoch:04d}.pt"
    export(path, network, arch, job.recipe, backbone_origin(job, steps))


def exported_networks(job: Job) -> dict[str, tuple[str, nn.Module]]:
    """Return file name -> (architecture, network).

    A backbone with several heads gives two files: with all heads, and with only the first.
    """
    arch, backbone = job.recipe.arch, job.method.backbone
    if not isinstance(backbone, BranchedResNet):
        return {"backbone": (arch, backbone)}
    return {
        "backbone": (f"{arch}-heads{len(backbone.layer4)}", backbone),
        "backbone-head0": (arch, backbone.head(0)),
    }


def export(
    path: Path,
    backbone: nn.Module,
    arch: str,
    recipe: Recipe[Any],
    made_by: dict[str, object],
    projectors: Sequence[nn.Module] = (),
) -> None:
    """Write a backbone, its input format (of the recipe) and its origin.

    Tensors are float32, with torchvision's names. torch.load reads the file with weights_only.

    Args:
        projectors: one per head; they make it an encoder file, with "projectors" from
            `describe_projectors`.
    """
    tensors = {name: plain_tensor(value) for name, value in backbone.state_dict().items()}
    description: dict[str, object] = {
        "format": ENCODER_FORMAT if projectors else FORMAT,
        "arch": arch,
        "stem": recipe.stem,
        "input": {
            "mean": list(recipe.views.mean),
            "std": list(recipe.views.std),
            "size": recipe.test_px or recipe.views.size_px,
            "channels": "RGB",
        },
        "made_by": made_by,
    }
    if projectors:
        description["projectors"] = describe_projectors(backbone, projectors)
    checkpoint.save(path, {**description, "state_dict": tensors})


def versions() -> dict[str, str]:
    """Return the versions of libraries that affect a run's numbers."""
    return {
        "python": platform.python_version(),
        "torch": str(torch.__version__),
        "torchvision": str(torchvision.__version__),
        "numpy": numpy.__version__,
    }


Layer = dict[str, object]
"""Plain values and tensors of a layer: "kind", and its parameters."""


def describe_projectors(
    backbone: nn.Module, projectors: Sequence[nn.Module]
) -> list[dict[str, object]]:
    """Return "features" and "layers" of each head's projector.

    "features" are the columns [start, stop) of the backbone's output that the projector reads: all
    of them, or the columns of its branch of a BranchedResNet.
    """
    descriptions: list[dict[str, object]] = []
    for head, projector in enumerate(projectors):
        first_layer = next(layer for layer in projector.modules() if isinstance(layer, nn.Linear))
        # all branches have equal width, and their features are concatenated
        start = head * first_layer.in_features if isinstance(backbone, BranchedResNet) else 0
        columns = [start, start + first_layer.in_features]
        descriptions.append({"features": columns, "layers": list(describe_layers(projector))})
    return descriptions


def describe_layers(module: nn.Module) -> Iterator[Layer]:
    """Yield the layers of a projector in order.

    Raises ValueError for an unknown type of layer.
    """
    match module:
        case nn.Sequential():
            for child in module:
                yield from describe_layers(child)
        case nn.Linear():
            yield {"kind": "linear"} | _tensors(weight=module.weight, bias=module.bias)
        case _BatchNorm():
            yield {"kind": "batch_norm", "eps": module.eps} | _tensors(
                running_mean=module.running_mean,
                running_var=module.running_var,
                weight=module.weight,
                bias=module.bias,
            )
        case nn.ReLU():
            yield {"kind": "relu"}
        # the tanh approximation has other values, so it would need another kind
        case nn.GELU(approximate="none"):
            yield {"kind": "gelu"}
        case _:
            raise ValueError(
                f"the projector has a layer {module}, which encoder.pt does not support. Add it to "
                f"pretrain/export.py and transfer/encoders/projector.py"
            )


def plain_tensor(value: Tensor) -> Tensor:
    """Return a contiguous CPU copy; floats are converted to float32."""
    plain = value.detach().float() if value.is_floating_point() else value.detach()
    # torch.save writes the whole storage of a view, and a plain clone stays channels last
    return plain.cpu().clone(memory_format=torch.contiguous_format)


def _tensors(**tensors: Tensor | None) -> Layer:
    """Return copies of a layer's tensors, without None."""
    return {name: plain_tensor(value) for name, value in tensors.items() if value is not None}
