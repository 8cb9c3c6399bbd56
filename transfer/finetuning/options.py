"""User options of long trainings, and recipes that they change."""

import math
from dataclasses import dataclass, replace
from typing import Annotated, Literal

from pretrain.running.processes import num_gpus, started_processes
from pretrain.running.ranges import Count, NumGPUs, NumImages, Positive, Range
from transfer.finetuning.schedule import AnyRecipe, Precision

EngineChoice = Literal["auto", "detectron2", "torchvision"]
NAMED = {"paper": 1.0, "short": 0.1, "smoke": 0.0}
"""Length of each named schedule, relative to the paper.

The length of a smoke run is 0, since each task defines its few steps.
"""


@dataclass(frozen=True, kw_only=True)
class TrainingOptions:
    """Options of coco_*, voc0712_det_c4 and voc12_seg_fcn; precision and learning_rates apply to
    few labels, too. The table names every change of the protocol."""

    engine: EngineChoice = "auto"
    """Library that builds detectors. auto: detectron2 if it is installed, otherwise torchvision
    (the same detector)."""
    gpus: NumGPUs = 0
    """Number of GPUs, with one process each. 0: as many processes as torchrun started, or the
    largest number of GPUs on this machine that divides the batch size."""
    batch_size: NumImages = 0
    """Images per step. The learning rate and the number of steps follow from the linear scaling
    rule. 0: as in the protocol."""
    images_per_gpu: NumImages = 0
    """Images in a micro-batch on one GPU. If several micro-batches make a step, their gradients are
    accumulated. 0: one micro-batch per step."""
    iterations: Count = 0
    """Training steps. Learning rate drops move in proportion. 0: as in the protocol."""
    image_px: Annotated[int, Range(32, 2**13, or_zero=True)] = 0
    """Detection: short side of the test images in px; training images and anchors scale in
    proportion. Segmentation: size of the training crops in px. 0: as in the protocol."""
    precision: Precision | None = None
    """Precision of the networks; bfloat16 and float16 use autocast. None: float32, as in the
    protocol."""
    learning_rates: tuple[Positive, ...] = ()
    """Learning rates (of the classifier, in semi-supervised tasks). Several are compared on a
    held-out part of the training set; a single one is used directly. Default: as in the
    protocol."""

    def num_processes(self, batch_size: int) -> int:
        """Return torchrun's number of processes, otherwise `gpus` or the largest divisor."""
        choices = range(1, max(1, num_gpus()) + 1)
        return started_processes() or self.gpus or max(n for n in choices if batch_size % n == 0)

    def applied(self, recipe: AnyRecipe) -> AnyRecipe:
        """Return the recipe with these options. Raises ValueError if it cannot run here."""
        gpus = num_gpus()
        if gpus and self.gpus > gpus:
            raise ValueError(
                f"--gpus {self.gpus}: this machine has only {gpus}. Pass --gpus {gpus} or fewer"
            )
        # with --gpus on a machine without GPUs, the plan is for another machine
        if self.precision == "float16" and not gpus and not self.gpus:
            raise ValueError(
                f"--precision {self.precision} needs a GPU. On a CPU, pass --precision bfloat16"
            )
        if self.batch_size and self.batch_size != recipe.batch_size:
            recipe = with_batch(recipe, self.batch_size)
        if self.iterations:
            recipe = of_length(recipe, self.iterations / recipe.iterations)
        if self.image_px:
            recipe = recipe.at_size(self.image_px)
        if self.precision is not None:
            recipe = replace(recipe, precision=self.precision)
        if len(self.learning_rates) == 1:
            recipe = replace(recipe, learning_rate=self.learning_rates[0])
        num_processes = self.num_processes(recipe.batch_size)
        images_per_process, rest = divmod(recipe.batch_size, num_processes)
        accumulated = recipe.accumulated
        if self.images_per_gpu:
            accumulated = max(1, images_per_process // self.images_per_gpu)
        micro_batch = self.images_per_gpu or images_per_process // accumulated
        if rest or micro_batch * accumulated != images_per_process:
            raise ValueError(
                f"a batch of {recipe.batch_size} images cannot be divided among {num_processes} "
                f"processes with {self.images_per_gpu or 'equally many'} images each; choose "
                f"another --gpus, --images-per-gpu or --batch-size"
            )
        return replace(
            recipe,
            accumulated=accumulated,
            # smaller micro-batches, but statistics over the same number of images
            precise_norm_batches=recipe.precise_norm_batches * accumulated // recipe.accumulated,
        )


def length_fraction(schedule: str) -> float:
    """Return a schedule's length, as a fraction of the paper's.

    schedule: "paper", "short", "smoke", or a number such as "0.02".
    """
    if schedule in NAMED:
        return NAMED[schedule]
    try:
        value = float(schedule)
    except ValueError:
        value = math.nan
    if not 0 < value < 1:
        raise ValueError(
            f"--schedule {schedule!r}: expected paper, short, smoke, "
            "or a fraction of the paper's length, such as 0.02"
        )
    return value


def of_length(recipe: AnyRecipe, fraction: float) -> AnyRecipe:
    """Return the recipe with a fraction of the iterations.

    The warm-up keeps its length, but takes at most half of the iterations before the first drop
    (or the end). A drop within the warm-up would divide all its learning rates by ten.
    """
    iterations = max(1, round(recipe.iterations * fraction))
    milestones = tuple(max(1, round(step * fraction)) for step in recipe.milestones)
    first = min(milestones, default=iterations)
    return replace(
        recipe,
        iterations=iterations,
        milestones=milestones,
        warmup_iterations=min(recipe.warmup_iterations, max(1, first // 2)),
    )


def with_batch(recipe: AnyRecipe, batch_size: int) -> AnyRecipe:
    """Return the recipe with another batch size, by the linear scaling rule.

    The learning rate scales with the batch size, numbers of iterations with its inverse.
    """
    factor = batch_size / recipe.batch_size
    return replace(
        recipe,
        batch_size=batch_size,
        learning_rate=recipe.learning_rate * factor,
        iterations=max(1, round(recipe.iterations / factor)),
        milestones=tuple(max(1, round(step / factor)) for step in recipe.milestones),
        warmup_iterations=round(recipe.warmup_iterations / factor),
        # statistics over the same number of images
        precise_norm_batches=math.ceil(recipe.precise_norm_batches / factor),
    )
