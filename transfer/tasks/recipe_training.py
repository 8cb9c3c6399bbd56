"""What detection and segmentation have in common: all layers of a network are trained by a recipe.

A task supplies its images, its network, one training with its test, and the score of that; here is
the order of the steps: prove the weights, compare learning rates if several are given, train.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, TypeVar

from pretrain.running.atomic_files import content_hash
from pretrain.running.processes import this_process
from transfer.backbone import Backbone, BackboneError
from transfer.convert.architectures import has_max_pool, is_large
from transfer.encoders.encoder import Encoder
from transfer.finetuning.options import TrainingOptions, at_schedule
from transfer.finetuning.schedule import AnyRecipe, FineTuningRecipe
from transfer.running.console import print_line
from transfer.running.folders import Folders
from transfer.running.measured_rates import ASSUMED, Rates
from transfer.tasks.task import PlannedTask

if TYPE_CHECKING:
    from transfer.datasets.splits import Split
    from transfer.finetuning.norms import Norm
    from transfer.finetuning.state import TrainingSummary

AnyPortion = TypeVar("AnyPortion")
"""Training and test images of one training: all of them, or those of the rate search."""


@dataclass(frozen=True, eq=False)
class Prepared(Generic[AnyPortion]):
    """The inputs of a run, opened and proven before it starts."""

    backbone: Backbone
    norm: Norm
    differences: dict[str, float]
    """Largest difference of each stage's map from torchvision's, in units of its largest value."""
    images: AnyPortion
    """Training images and test images."""
    held_out: AnyPortion | None
    """Two parts of the training images, to compare learning rates on; None without a search."""


@dataclass(frozen=True, kw_only=True)
class RecipeTraining(ABC, Generic[AnyRecipe]):
    """Part of a task that trains all layers of a network and tests its last weights."""

    heading: ClassVar[str] = "Detection and segmentation"
    code_version: ClassVar[int] = 1
    """Part of every training's identity: raise it when the weights would change."""

    dataset: str
    recipe: AnyRecipe
    learning_rates: tuple[float, ...] = ()
    """Learning rates to compare on a held-out part of the training images; none: the recipe's."""

    @property
    @abstractmethod
    def engine(self) -> str:
        """Return the name of the library that computes."""

    @property
    @abstractmethod
    def primary_metric(self) -> str:
        """Return the metric that rates are compared by."""

    @abstractmethod
    def unfit(self, backbone: Backbone) -> str:
        """Return why a backbone cannot carry the network; empty if it can."""

    def datasets(self) -> tuple[str, ...]:
        """Return the keys of the data sets it reads."""
        return (self.dataset,)

    def at_schedule(self, schedule: str) -> Self:
        """Return the protocol with a share of the iterations; smoke: with a tiny network."""
        return replace(self, recipe=at_schedule(self.recipe, schedule))

    def for_backbone(self, backbone: Backbone) -> Self:
        """Return the protocol with the backbone's pixel scale; the image size is its own."""
        mean, std = backbone.input.mean, backbone.input.std
        return replace(self, recipe=replace(self.recipe, pixel_mean=mean, pixel_std=std))

    def with_options(self, options: TrainingOptions) -> Self:
        """Return the protocol with the user's options; a departure from it changes the hash."""
        recipe = options.applied(self.recipe)
        return replace(self, recipe=recipe, learning_rates=options.searched_rates)

    @property
    def heeded_options(self) -> frozenset[str]:
        """Return the names of all training options but that of few labels."""
        return frozenset(vars(TrainingOptions())) - {"rates_at_once"}

    def num_processes(self, options: TrainingOptions) -> int:
        """Return the number of processes of the training."""
        return options.num_processes(self.recipe.batch_size)

    @property
    def trains_backbone(self) -> bool:
        """Return True: the whole network is fine-tuned."""
        return True

    @property
    def distributed_training(self) -> AnyRecipe:
        """Return the recipe, whose batch is divided among GPUs."""
        return self.recipe

    def gpu_hours(self, backbone: Backbone, rates: Rates = ASSUMED) -> float:
        """Return the estimated hours of training on one GPU; a test is short beside it."""
        from transfer.frozen.pass_hours import FORWARD_COST

        cost = FORWARD_COST.get(backbone.arch, 1.0) * self.relative_size() ** 2
        images = self.recipe.iterations * self.recipe.batch_size
        speed = self.measured_speed(rates) or self.assumed_speed()
        return (1 + len(self.learning_rates)) * cost * images / speed / 3600

    @abstractmethod
    def relative_size(self) -> float:
        """Return the side of the images relative to those of the speeds."""

    @abstractmethod
    def assumed_speed(self) -> float:
        """Return the images per second on which a ResNet-50 trains, where it is not measured."""

    @abstractmethod
    def image_gb(self) -> float:
        """Return the memory in GB that a step on a ResNet-50 takes in float32 for each image."""

    @abstractmethod
    def measured_speed(self, rates: Rates) -> float:
        """Return the measured images per second of such a training; 0 if there is none."""

    def hours_note(
        self,
        what: str,
        planned: Sequence[PlannedTask[Self]],
        assumed: str,
        options: TrainingOptions,
        num_gpus: int,
    ) -> str:
        """Return the line of a plan on hours and wall time; assumed: why, where not measured."""
        hours = sum(row.gpu_hours for row in planned)
        measured = all(row.task.measured_speed(row.rates) for row in planned)
        source = f"({planned[0].rates.source})" if measured else assumed
        wall = wall_time(planned, options, num_gpus)
        memory = max(row.task.memory_gb(row.task.num_processes(options)) for row in planned)
        return (
            f"{what}: about {hours:.1f} GPU hours {source}; {wall}; a GPU needs at least "
            f"{memory:.1f} GB for a ResNet-50"
        )

    def memory_gb(self, num_processes: int) -> float:
        """Return the least memory in GB of a GPU for a step on a ResNet-50."""
        images = self.recipe.batch_size / num_processes / self.recipe.accumulated
        whole = self.image_gb() * images * self.relative_size() ** 2
        return whole if self.recipe.precision == "float32" else whole / 2

    @abstractmethod
    def portion(self, folders: Folders, train: str, test: str) -> Any:
        """Return two checked splits, without the broken images that the user tolerates."""

    @abstractmethod
    def initial(
        self, backbone: Backbone, train: Any, norm: Norm, folders: Folders, *, seed: int
    ) -> Any:
        """Return the network before training; torch's global generator keeps its state."""

    @abstractmethod
    def prove(self, network: Any, backbone: Backbone) -> dict[str, float]:
        """Return the largest difference of each stage's map from the backbone's own.

        ProofError if one is too large.
        """

    @abstractmethod
    def train(
        self,
        prepared: Prepared[Any],
        folders: Folders,
        seed: int,
        portion: Any,
        rate: float,
        name: str,
    ) -> Any:
        """Train on a portion's images; return the predictions of the last weights for its test."""

    @abstractmethod
    def score(self, predictions: Any) -> float:
        """Return the primary metric of predictions, in percent."""

    def prepare(self, backbone: Backbone, folders: Folders) -> Prepared[Any]:
        """Open all images, load the weights into the network and prove it on a fixed image.

        BackboneError if no network can be built on the backbone.
        """
        from transfer.finetuning.norms import norm_for

        if reason := self.unfit(backbone):
            raise BackboneError(f"{backbone.name}: no network can be built on it: {reason}")
        process = this_process()
        norm = norm_for(self.recipe.synchronized_norm, process.device, process.num_processes)
        images = self.portion(folders, "trainval", "test")
        network = self.initial(backbone, images.train, norm, folders, seed=0)
        differences = self.prove(network, backbone)
        if process.is_main:
            placed, worst = len(backbone.state_dict), max(differences.values())
            print_line(
                "weights", f"{placed} tensors in place, maps within {worst:.0e}; norm {norm}"
            )
        held_out = self.portion(folders, "train", "val") if self.learning_rates else None
        return Prepared(backbone, norm, differences, images, held_out)

    def run(self, prepared: Prepared[Any], folders: Folders, seed: int) -> Any:
        """Return the predictions on test after training on all images.

        If several learning rates are given, they are compared first.
        """
        from transfer.finetuning.learning_rate_search import (
            best_rate,
            scores_by_name,
            search_learning_rates,
        )

        def score_held_out(rate: float) -> float:
            predictions = train(prepared.held_out, rate, f"rate-{rate:g}")
            return self.score(predictions) if this_process().is_main else math.nan

        train = partial(self.train, prepared, folders, seed)
        rates = self.learning_rates if prepared.held_out is not None else ()
        scores = search_learning_rates(rates, score_held_out, self.primary_metric)
        chosen = best_rate(scores, self.recipe.learning_rate)
        predictions = train(prepared.images, chosen, "all")
        held_out = {f"held_out_{self.primary_metric}": scores_by_name(scores)}
        return replace(predictions, details={**predictions.details, **held_out})

    def training_folder(
        self,
        prepared: Prepared[Any],
        folders: Folders,
        recipe: AnyRecipe,
        seed: int,
        images: Split,
        name: str,
    ) -> Path:
        """Return the folder of a training, named after all that determines its weights."""
        same = training_hash(
            prepared,
            recipe,
            seed,
            code_version=self.code_version,
            engine=self.engine,
            images=images.fingerprint,
        )
        return folders.work / f"{name}-{same}"


def why_not_whole(backbone: Backbone, strides: str) -> str:
    """Return why a backbone cannot be fine-tuned as a whole; empty if it can.

    strides: clause of the message on the strides that a backbone with another stem does not have.
    """
    if isinstance(backbone, Encoder):
        return (
            f"{backbone.arch} is evaluated by tasks on frozen features; these papers' networks "
            "need the four stages of a ResNet"
        )
    if backbone.stem != "imagenet":
        kept = "half the image's size" if is_large(backbone.stem) else "the image's full size"
        kept = "half the image's size" if has_max_pool(backbone.stem) else kept
        return f"the {backbone.stem} stem keeps {kept}: {strides}"
    if "-heads" in backbone.arch:
        return f"{backbone.arch} has several layer4; give the file of one head"
    return ""


def training_hash(
    prepared: Prepared[Any],
    recipe: FineTuningRecipe,
    seed: int,
    *,
    code_version: int,
    engine: str,
    images: str,
) -> str:
    """Return a hash of all that determines the weights; a training resumes only its own state.

    images: fingerprint of the training images.
    """
    parts = [
        code_version,
        engine,
        prepared.norm,
        prepared.backbone.sha256,
        images,
        asdict(recipe),
        seed,
        this_process().num_processes,
    ]
    return content_hash(parts, 12)


def training_details(
    prepared: Prepared[Any], recipe: FineTuningRecipe, training: TrainingSummary
) -> dict[str, object]:
    """Return the details of a training for its record."""
    from transfer.finetuning.norms import images_per_norm

    process = this_process()
    return {
        "norm": prepared.norm,
        "num_processes": process.num_processes,
        "tensors_placed": len(prepared.backbone.state_dict),
        "largest_difference_of_maps": prepared.differences,
        "images_per_norm_statistic": images_per_norm(recipe, prepared.norm, process),
        "learning_rate": recipe.learning_rate,
        "tf32_convolutions": _tf32(recipe),
        "training": asdict(training),
    }


def _tf32(recipe: FineTuningRecipe) -> bool:
    """Return whether float32 convolutions run in TF32, with 10 bits of mantissa."""
    import torch

    asked = recipe.precision == "float32" and torch.backends.cudnn.allow_tf32
    return asked and torch.cuda.is_available() and torch.cuda.get_device_capability() >= (8, 0)


def wall_time(planned: Sequence[PlannedTask[Any]], options: TrainingOptions, num_gpus: int) -> str:
    """Return how long tasks take one after another, each on as many GPUs as its batch allows."""
    if not num_gpus and not options.gpus:
        return "this machine has no GPU: its processor will take hundreds of times as long"
    processes = [row.task.num_processes(options) for row in planned]
    hours = sum(row.gpu_hours / n for row, n in zip(planned, processes, strict=True))
    most = max(processes)
    return f"{hours:.1f} hours on {most} GPU{'s' * (most > 1)}"


def mean_of_three(planned: Sequence[PlannedTask[Any]], key: str) -> list[str]:
    """Return the advice to run three seeds of a task whose published number averages three runs."""
    seeds = {row.seed for row in planned if row.key == key}
    if 0 < len(seeds) < 3:
        return [f"{key}: the paper's numbers are means of three runs: --seeds 0,1,2"]
    return []
