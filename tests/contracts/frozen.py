"""Facts whose change invalidates records, caches or unfinished trainings.

After an intended change, `python -m tests.contracts.frozen` writes frozen.json again.
"""

import hashlib
import json
import sys
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock, patch

from pretrain.job import flatten
from pretrain.methods import METHODS
from pretrain.recipes import RECIPES
from transfer.cells.cell import Cell
from transfer.cells.request import Settings
from transfer.datasets.catalog import DATASETS
from transfer.datasets.images import Images, image_files
from transfer.encoders.encoder import Encoder, InputFormat
from transfer.frozen import linear_heads
from transfer.frozen.feature_cache import cache_key
from transfer.frozen.probe_training import ProbeTraining
from transfer.frozen.transforms import EvalTransform
from transfer.record import protocol_hash
from transfer.tasks import TASKS, reading_of
from transfer.tasks.detection import Detection
from transfer.tasks.recipe_training import training_hash
from transfer.tasks.segmentation import Segmentation
from transfer.tasks.semi_supervised import SemiSupervised

FILE = Path(__file__).with_suffix(".json")
FIRST_WORDING = {
    "; the projector's last norm without affine parameters and LARS without biases and norms are "
    "ours, since the paper states neither": "",
    ", the projector's last norm without affine parameters and LARS without biases and norms; the "
    "paper states none": ", the paper tells none",
    ", the stem of CIFAR's ResNets and the projector's last norm without affine parameters are "
    "ours; the paper states none": ", the paper tells none",
    "; the projector's hidden width of 512 as in the released code": "",
    "as printed, but 512 keys leave the queue per step, not 256": "as printed",
    "as printed in the main text, not in appendix A.2 (SGD); two queues and the rows of Q as in "
    "the released code": "as printed",
    "section 6.2, not in appendix A.2 (SGD)": "section 6.2",
    "; 200 epochs with a cosine schedule are ours: the paper has a step schedule and no length": "",
    "LORAC (arXiv:2108.02696), section 6.2": "LORAC (arXiv:2108.02696), section 6.3",
    ". Optimizer, batch size and views are UniCLR's, with equal augmentation of both views. The "
    "momentum is what DINO's code advises for small batches. Outputs": ": optimizer, batch and "
    "views, both alike and not DINO's, are those of UniCLR's own rows, the momentum is what DINO's "
    "code advises for small batches, outputs",
    "solo-learn's table has the same value,": "the value also stands in solo-learn's table,",
    "states neither learning rate nor queue; they are from": "tells neither rate nor queue: those "
    "of",
    "half the variance weight, BYOL's two different views, another final learning rate": "half the "
    "weight of the variance, BYOL's two unlike views, another final rate",
    "no code of the authors; settings": "no authors' code: readings",
    "on small datasets, as in the MNN benchmark, not the paper": "on small sets as the MNN "
    "benchmark runs it; not the authors'",
    "a copy of the authors' code for small datasets, which does not state the length; 200 epochs "
    "as in code derived from it": "the authors' code for small sets, re-hosted; its length is not "
    "known: 200 epochs are those of derived code",
    ", and in Zero-CL's README, with the same value. Neither": ", with the value of Zero-CL's "
    "README; neither",
    "learning rate proportional to the batch size (figure 9)": "rate by the batch, as in figure 9",
    "learning rate proportional to the root of the batch size": "rate by the batch's root",
    "with this batch size; the README": "with this batch; that README",
    "since the paper states none": "the paper tells none",
}
"""Present text of a recipe's `paper` -> frozen text.

Runs do not depend on it.
"""
RETIRED: dict[str, dict[str, object]] = {
    "looc": {"config.coincidences": "literal"},
    "loocpp": {"config.coincidences": "literal"},
    "swav": {"config.num_assigned_views": 2},
}
"""Method -> removed settings of its recipes, with their only value."""
SCHEDULES = ("paper", "short", "smoke", "0.02")
TRANSFORMS = {
    "center": EvalTransform.center(224, 32),
    "whole": EvalTransform.center(32, 0),
    "squash": EvalTransform(resize_px=256, crop_px=224, squash=True),
    "border": replace(EvalTransform.center(224, 32), border_px=2),
    "turned": replace(EvalTransform.center(224, 32), turns=3),
}
TRAININGS = {
    "transfer": ProbeTraining(learning_rates=(0.1, 1.0), steps=5000, batch_size=64),
    "probe": ProbeTraining(learning_rates=(30.0,), epochs=100.0, decays=("step",)),
    "lars": ProbeTraining(learning_rates=(1.6,), epochs=90.0, optimizer="lars"),
    "rotations": ProbeTraining(learning_rates=(30.0,), epochs=200.0, labels="rotations"),
}


def backbone(arch: str, stem: Any, size_px: int) -> Encoder:
    """A backbone without weights, known by a fixed hash."""
    return Encoder(
        name="frozen",
        arch=arch,
        stem=stem,
        state_dict={},
        input=InputFormat(size_px=size_px),
        made_by={},
        source="",
        file_sha256="",
        sha256=hashlib.sha256(f"{arch} {stem} {size_px}".encode()).hexdigest(),
    )


BACKBONES = {
    "resnet50": backbone("resnet50", "imagenet", 224),
    "resnet18-cifar": backbone("resnet18", "cifar", 32),
}


def cells(schedule: str, network: Encoder) -> dict[str, Cell]:
    """The cell of every task."""
    nowhere = Path("nowhere")
    settings = Settings(data=nowhere, results=nowhere, runs=nowhere, schedule=schedule)
    return {
        key: Cell.with_backbone(task=key, backbone=network, seed=0, settings=settings)
        for key in TASKS
    }


def protocols() -> dict[str, str]:
    """Return protocol hash and record of every task, schedule and backbone."""
    return {
        f"{key} {schedule} {name}": (
            f"{protocol_hash(reading_of(key)[0], cell.task)} {cell.path.name}"
        )
        for schedule in SCHEDULES
        for name, network in BACKBONES.items()
        for key, cell in cells(schedule, network).items()
    }


def images() -> Images:
    """Three images whose fingerprint needs no file."""
    result = image_files(Path("nowhere"), ["a.jpg", "b.jpg", "c.jpg"], [0, 1, 1], ["first", "last"])
    result.__dict__["fingerprint"] = "0123456789abcdef"
    return result


@patch("torch.cuda.is_available", return_value=False)  # the device is part of a cache key
def caches(_: Mock) -> dict[str, str]:
    """Names of features in the cache."""
    return {
        f"{name} {kind} {precision}": cache_key(
            replace(network, precision=precision), images(), transform
        )
        for name, network in BACKBONES.items()
        for kind, transform in TRANSFORMS.items()
        for precision in ("float32", "bfloat16")
    }


def trainings() -> dict[str, str]:
    """Identities of trainings, which unfinished ones are found by."""
    result = {
        f"heads {name} {kind}": (
            f"heads-{linear_heads.training_hash(network, images(), training, 0)}.pt"
        )
        for name, network in BACKBONES.items()
        for kind, training in TRAININGS.items()
    }
    for schedule in SCHEDULES:
        for key, cell in cells(schedule, BACKBONES["resnet50"]).items():
            task: Any = cell.task
            if isinstance(task, Detection | Segmentation):
                result[f"{key} {schedule}"] = training_hash(
                    cell.backbone, "BN", task.recipe, 0, engine="torchvision", images="f00"
                )
            elif isinstance(task, SemiSupervised):
                result[f"{key} {schedule}"] = _hash(asdict(task.fine_tuning(1000, 0.1)))
    return result


def recipes() -> dict[str, str]:
    """Hash of every recipe, with descriptions in their first wording."""
    flat_recipes = {name: flatten(asdict(recipe)) for name, recipe in RECIPES.items()}
    for settings in flat_recipes.values():
        for now, previous in FIRST_WORDING.items():
            settings["paper"] = str(settings["paper"]).replace(now, previous)
        del settings["norm_groups"]  # a fact about the paper, on which a run does not depend
        settings |= RETIRED.get(str(settings["method"]), {})
    return {name: _hash(settings) for name, settings in flat_recipes.items()}


def _hash(content: object) -> str:
    text = json.dumps(content, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def frozen() -> dict[str, Any]:
    """All of it."""
    return {
        "methods": sorted(METHODS),
        "recipes": recipes(),
        "tasks": sorted(key for key, task in TASKS.items() if task.by_default),
        "tasks on request": sorted(key for key, task in TASKS.items() if not task.by_default),
        "data sets": sorted(DATASETS),
        "protocols": protocols(),
        "caches": caches(),
        "trainings": trainings(),
    }


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit("no options are known: python -m tests.contracts.frozen writes frozen.json")
    FILE.write_text(json.dumps(frozen(), indent=1) + "\n")
