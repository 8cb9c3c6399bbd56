"""What a run would do, before it does anything: a line per cell."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args

import torch

from transfer.backbone import Backbone
from transfer.cell import (
    Cell,
    departures,
    finished,
    on_frozen_features,
    registered,
    without_classifier,
)
from transfer.convert.resnet import network_and_heads
from transfer.datasets.catalog import DATASETS
from transfer.detection.engines import HOW_TO_INSTALL
from transfer.tasks import Dependent, FineTuned
from transfer.tasks.detection import Detection
from transfer.tasks.linear_probe import LinearProbe
from transfer.tasks.segmentation import Segmentation
from transfer.tasks.semi_supervised import LISTED_SHARE, SemiSupervised
from transfer.training.options import TrainingOptions

State = Literal["run", "cached", "no data", "unfit"]

DETECTOR_IMAGES_PER_GPU_SECOND = {
    ("c4", "boxes"): 3.6,
    ("fpn", "boxes"): 9.5,
    ("fpn", "masks"): 7.7,
    ("fpn", "keypoints"): 6.3,
}
"""Trained by detectron2's R50 1x recipes: 16 images in 0.551, 0.210, 0.261 and 0.315 s on eight
V100 (its model zoo). Newer GPUs are faster; the torchvision engine computes the same."""
FCN_IMAGES_PER_GPU_SECOND = 20.0
"""Assumed for a ResNet-50 trained in float32 on crops of 513 px, whose arithmetic is about a fifth
of a Faster R-CNN's image, until measured on the user's GPU."""
IMAGES_PER_GPU_SECOND = 2500.0
"""Assumed for a ResNet-50 at 224 px in bf16, until measured on the user's GPU."""
FORWARD_COST = {"resnet18": 0.44, "resnet34": 0.89, "resnet101": 1.9, "resnet152": 2.8}
"""Arithmetic of a forward pass beside a ResNet-50's (torchvision's table of GFLOPS)."""
LAYER4_COST = {"resnet18": 0.10, "resnet34": 0.16}
"""Of layer4 alone, in the same unit; 0.20 where blocks are bottlenecks."""
BACKWARD_COST = 3.0
"""Arithmetic of a training step of the whole network beside its forward pass."""
CIFAR_STEM_COST = 15.0
"""Arithmetic of the CIFAR stem (3x3, stride 1, no max-pool) beside the ImageNet stem's."""


@dataclass(frozen=True)
class PlannedCell:
    """A cell, and what would become of it."""

    cell: Cell
    state: State
    missing: tuple[str, ...]
    """Data sets that are not there."""
    gpu_hours: float
    why: str = ""
    """The backbone is unfit for the task; or whose classifier it uses."""


def planned(cell: Cell) -> PlannedCell:
    """Look at data and records of a cell without computing anything."""
    missing = tuple(
        key for key in cell.task.datasets() if not DATASETS[key].is_there(cell.place.data)
    )
    if missing:
        return PlannedCell(cell, "no data", missing, 0.0)
    why = cell.task.unfit(cell.backbone) if isinstance(cell.task, FineTuned) else ""
    if why:
        return PlannedCell(cell, "unfit", (), 0.0, why)
    if finished(cell) is not None:
        return PlannedCell(cell, "cached", (), 0.0)
    return PlannedCell(cell, "run", (), gpu_hours(cell), classifier_note(cell))


def classifier_note(cell: Cell) -> str:
    """Whose classifier the cell will use, and whether that is there; empty where it uses none."""
    needed = cell.needed
    if needed is None:
        return ""
    missing = without_classifier(needed)
    there = f"trained first, {missing}" if missing else "finished"
    return f"classifier of {needed.key}: {there}"


def with_classifiers(rows: Sequence[PlannedCell]) -> list[PlannedCell]:
    """The rows, and before those that use a classifier which is not there the one that trains it.

    Once each, whether or not it was asked for, and also where its record is there without weights.
    """
    found: dict[Path, PlannedCell] = {}
    for row in rows:
        needed = row.cell.needed
        if needed is not None and row.state == "run" and finished(needed) is None:
            found[needed.path] = replace(planned(needed), why="others use its classifier")
        found.setdefault(row.cell.path, row)
    return list(found.values())


def with_shared_heads(rows: Sequence[PlannedCell]) -> list[PlannedCell]:
    """The rows, where they run one after another: heads that another row trains cost nothing."""
    first: dict[object, str] = {}
    found = []
    for row in rows:
        cell, task = row.cell, row.cell.task
        if row.state == "run" and isinstance(task, LinearProbe):
            seen = (cell.backbone.sha256, cell.seed, task.images_seen)
            trainer = first.setdefault(seen, cell.key)
            if trainer != cell.key:
                row = replace(row, gpu_hours=0.0, why=f"its head is trained by {trainer}")
        found.append(row)
    return found


def shared(rows: Sequence[PlannedCell]) -> list[list[PlannedCell]]:
    """Rows whose features are the work of one pass, where there are several.

    Of one backbone and one data set; where nothing but features is made of a data set, of all
    backbones that see it at one size.
    """
    groups: dict[object, list[PlannedCell]] = {}
    for row in rows:
        task = row.cell.task
        if isinstance(task, Dependent):
            groups.setdefault(task, []).append(row)
        elif on_frozen_features(task):
            groups.setdefault((row.cell.backbone.sha256, task.datasets()), []).append(row)
    return [group for group in groups.values() if len(group) > 1]


def gpu_hours(cell: Cell) -> float:
    """Forward passes of the protocol on published counts, at the assumed rate."""
    if isinstance(cell.task, Detection):
        return detector_hours(cell.task, cell.backbone.arch)
    if isinstance(cell.task, Segmentation):
        return segmentation_hours(cell.task, cell.backbone.arch)
    if isinstance(cell.task, SemiSupervised):
        return few_labels_hours(cell.task, cell.backbone)
    task: Any = cell.task
    counts = DATASETS[task.datasets()[0]].counts
    trained = float(getattr(task, "steps", 0) * getattr(task, "batch_size", 0))
    trained += getattr(task, "epochs", 0) * counts.get("trainval", 0)
    extracted = counts.get("trainval", 0) + counts.get("test", 0)
    searches = 2.0 if hasattr(task, "learning_rates") else 1.0  # the rate is searched, then used
    return forward_hours(cell.backbone, searches * trained + extracted)


def forward_hours(backbone: Backbone, passes: float) -> float:
    """So many images through a backbone at its own size."""
    network, num_heads = network_and_heads(backbone.arch)
    cost = FORWARD_COST.get(network, 1.0)
    cost += max(0, num_heads - 1) * LAYER4_COST.get(network, 0.20)
    cost *= (backbone.input.size_px / 224) ** 2
    if backbone.stem == "cifar":
        cost *= CIFAR_STEM_COST
    return cost * passes / IMAGES_PER_GPU_SECOND / 3600


def few_labels_hours(task: SemiSupervised, backbone: Backbone) -> float:
    """Of the search, on what is not held out, and of the last training."""
    counts = DATASETS[task.dataset].counts
    labelled = counts["trainval"] * (task.drawn_share or 1.0)
    searches = len(task.head_rates) if len(task.head_rates) > 1 else 0
    trained = task.epochs * labelled * (1 + searches * (1 - task.held_out_share))
    return forward_hours(backbone, BACKWARD_COST * trained + counts["test"])


def detector_hours(task: Detection, arch: str) -> float:
    """Training alone; a test passes the images once."""
    recipe = task.recipe
    rate = DETECTOR_IMAGES_PER_GPU_SECOND[recipe.neck, recipe.finds]
    runs = 1 + len(task.learning_rates)
    cost = FORWARD_COST.get(arch, 1.0) * (recipe.test_short_px / 800) ** 2
    return runs * cost * recipe.iterations * recipe.batch_size / rate / 3600


def segmentation_hours(task: Segmentation, arch: str) -> float:
    """Training alone; a test passes the images once."""
    recipe = task.recipe
    runs = 1 + len(task.learning_rates)
    cost = FORWARD_COST.get(arch, 1.0) * (recipe.crop_px / 513) ** 2
    return runs * cost * recipe.iterations * recipe.batch_size / FCN_IMAGES_PER_GPU_SECOND / 3600


def render_plan(rows: list[PlannedCell]) -> str:
    """The plan as a table for people."""
    lines = [
        f"{'backbone':<16}{'task':<30}{'protocol':<22}{'engine':<16}{'seed':<6}"
        f"{'state':<9}{'GPU h':>7}  data"
    ]
    for row in rows:
        cell = row.cell
        have = (
            "missing: " + ", ".join(row.missing) if row.missing else ", ".join(cell.task.datasets())
        ) + (f"; {row.why}" if row.why else "")
        hours = f"{row.gpu_hours:.2f}" if row.state == "run" else "-"
        lines.append(
            f"{cell.backbone.name:<16}{cell.key:<30}{cell.task.protocol:<22}"
            f"{cell.task.engine:<16}{cell.seed:<6}{row.state:<9}{hours:>7}  {have}"
        )
    counts = {state: sum(row.state == state for row in rows) for state in get_args(State)}
    others = sum(row.gpu_hours for row in rows if not isinstance(row.cell.task, FineTuned))
    lines.append(
        f"{counts['run']} to run, {counts['cached']} finished, {counts['no data']} without data, "
        f"{counts['unfit']} with an unfit backbone; about {others:.1f} GPU hours if a ResNet-50 "
        f"passes {IMAGES_PER_GPU_SECOND:.0f} images of 224 px a second (assumed, not measured)"
    )
    lines += _few_labels_lines(rows) + _detector_lines(rows) + _segmentation_lines(rows)
    lines += sorted(_gaps(rows))
    return "\n".join(lines)


def _few_labels_lines(rows: list[PlannedCell]) -> list[str]:
    """How many settings are tried, and where labelled images are drawn for want of the lists."""
    tasks = [row.cell.task for row in rows if row.state == "run"]
    cells = [task for task in tasks if isinstance(task, SemiSupervised)]
    grids = sorted({len(task.head_rates) for task in cells if len(task.head_rates) > 1})
    lines = [
        f"few labels: {count} learning rates are tried on labelled images that are held out, then "
        "one training on all; in one process"
        for count in grids
    ]
    if any(task.dataset == "in1k" for task in cells):
        wanted = DATASETS[next(iter(LISTED_SHARE))].how_to_get
        lines.append(f"few labels: drawn by class, the published lists are not there. {wanted}")
    return lines


def _detector_lines(rows: list[PlannedCell]) -> list[str]:
    """How detectors will be trained: GPUs, wall time, engine."""
    cells = [row for row in rows if row.state == "run" and isinstance(row.cell.task, Detection)]
    if not cells:
        return []
    options = cells[0].cell.place.training
    hours = sum(row.gpu_hours for row in cells)
    lines = [
        f"detection: about {hours:.1f} GPU hours on V100 by detectron2's model zoo (assumed for "
        f"either engine, not measured); {_on_gpus(cells, options)}"
    ]
    lines += _three_runs(cells, "voc0712_det_c4")
    if any(row.cell.task.engine == "torchvision" for row in cells):
        chosen = options.engine == "torchvision"
        why = "as asked" if chosen else f"detectron2 is not installed. {HOW_TO_INSTALL}"
        lines.append(f"detection: the torchvision engine, {why}")
    return lines


def _segmentation_lines(rows: list[PlannedCell]) -> list[str]:
    """How segmentation will be trained: GPUs and wall time."""
    cells = [r for r in rows if r.state == "run" and isinstance(r.cell.task, Segmentation)]
    if not cells:
        return []
    hours = sum(row.gpu_hours for row in cells)
    return [
        f"segmentation: about {hours:.1f} GPU hours if a ResNet-50 trains on "
        f"{FCN_IMAGES_PER_GPU_SECOND:.0f} crops of 513 px a second (assumed, not measured); "
        f"{_on_gpus(cells, cells[0].cell.place.training)}",
        *_three_runs(cells, "voc12_seg_fcn"),
    ]


def _on_gpus(cells: list[PlannedCell], options: TrainingOptions) -> str:
    """Wall time, each cell on as many GPUs as its batch allows."""
    if not torch.cuda.device_count() and not options.gpus:
        return "this machine has no GPU: its processor will take hundreds of times as long"
    hours, most = 0.0, 1
    for row in cells:
        if isinstance(row.cell.task, FineTuned):
            num_gpus = row.cell.task.num_processes(options)
            hours, most = hours + row.gpu_hours / num_gpus, max(most, num_gpus)
    return f"{hours:.1f} hours on {most} GPU{'s' * (most > 1)}"


def _three_runs(cells: list[PlannedCell], key: str) -> list[str]:
    """CO2 averages three of its runs on VOC."""
    seeds = {row.cell.seed for row in cells if row.cell.key == key}
    if 0 < len(seeds) < 3:
        return [f"{key}: the paper's numbers are means of three runs: --seeds 0,1,2"]
    return []


def _gaps(rows: list[PlannedCell]) -> set[str]:
    return {f"to get {key}: {DATASETS[key].how_to_get}" for row in rows for key in row.missing}


def protocol_notes(rows: list[PlannedCell]) -> list[str]:
    """Where the cells will leave the papers' protocols, each line once."""
    notes: dict[str, list[str]] = {}
    for row in rows:
        if row.state != "no data":
            for line in departures(row.cell):
                notes.setdefault(line, []).append(row.cell.key)
    return [
        f"departs from {registered(keys[0]).protocol if len(keys) == 1 else 'the papers'}: {line} "
        f"({len(set(keys))} tasks)"
        for line, keys in notes.items()
    ]
