"""The base of detection and segmentation: all layers of a network are trained by a recipe.

A task supplies its images, its network, and one training with its test; here is the order of the
steps: prove the weights, compare learning rates if several are given, train.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self

from pretrain.running.atomic_files import content_hash
from pretrain.running.processes import this_process
from transfer.backbone import Backbone, BackboneError
from transfer.datasets.folders import Folders
from transfer.datasets.unchanged import usable_split
from transfer.encoders.encoder import Encoder
from transfer.finetuning.options import TrainingOptions, at_schedule
from transfer.finetuning.schedule import AnyRecipe, FineTuningRecipe
from transfer.frozen.pass_hours import FORWARD_COST
from transfer.tasks.task import Task

if TYPE_CHECKING:
    from transfer.finetuning.norms import Norm
    from transfer.finetuning.state import TrainingSummary

CODE_VERSION = 1
"""Part of every training's identity: raise it when the weights would change."""


@dataclass(frozen=True, eq=False)
class Portion:
    """Training and test images of one training: all of them, or those of the rate search."""

    train: Any
    test: Any


@dataclass(frozen=True, eq=False)
class Prepared:
    """The inputs of a run, opened and proven before it starts."""

    backbone: Backbone
    norm: Norm
    differences: dict[str, float]
    """Largest difference of each stage's map from torchvision's, in units of its largest value."""
    images: Portion
    held_out: Portion | None
    """Two parts of the training images, to compare learning rates on; None without a search."""


@dataclass(frozen=True, kw_only=True)
class RecipeTraining(Task, Generic[AnyRecipe]):
    """A task that trains all layers of a network and tests its last weights."""

    heading: ClassVar[str] = "Detection and segmentation"
    trains_backbone: ClassVar[bool] = True
    heeded_options: ClassVar[frozenset[str]] = frozenset(vars(TrainingOptions())) - {
        "rates_at_once"
    }

    recipe: AnyRecipe
    learning_rates: tuple[float, ...] = ()
    """Learning rates to compare on a held-out part of the training images; none: the recipe's."""

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

    def num_processes(self, options: TrainingOptions) -> int:
        """Return the number of processes of the training."""
        return options.num_processes(self.recipe.batch_size)

    @property
    def distributed_training(self) -> AnyRecipe:
        """Return the recipe, whose batch is divided among GPUs."""
        return self.recipe

    @property
    @abstractmethod
    def images_per_s(self) -> float:
        """Return the assumed images per second on which a ResNet-50 trains."""

    def gpu_hours(self, backbone: Backbone) -> float:
        """Return the estimated hours of training on one GPU; a test is short beside it."""
        images = self.recipe.iterations * self.recipe.batch_size * (1 + len(self.learning_rates))
        return FORWARD_COST.get(backbone.arch, 1.0) * images / self.images_per_s / 3600

    @abstractmethod
    def open(self, data: Path, split: str) -> Any:
        """Open a split of the data set."""

    def portion(self, folders: Folders, train: str, test: str) -> Portion:
        """Return two checked splits, without the broken images that the user tolerates."""
        splits = (
            usable_split(folders, self.dataset, split, self.open(folders.data, split))
            for split in (train, test)
        )
        return Portion(*splits)

    @abstractmethod
    def build(self, backbone: Backbone, num_classes: int, norm: Norm) -> Any:
        """Return the network with the backbone's weights; torch's generator draws the others."""

    @abstractmethod
    def prove(self, network: Any, backbone: Backbone) -> dict[str, float]:
        """Return the largest difference of each stage's map from the backbone's own.

        ProofError if one is too large.
        """

    @abstractmethod
    def train_and_test(
        self,
        network: Any,
        portion: Portion,
        recipe: AnyRecipe,
        seed: int,
        folder: Path,
        folders: Folders,
    ) -> tuple[TrainingSummary, Any]:
        """Train; return a summary and the predictions of the last weights for the test images.

        folder: that of the training's state.
        """

    def initial(self, backbone: Backbone, portion: Portion, norm: Norm, seed: int) -> Any:
        """Return the network before training; torch's global generator keeps its state."""
        import torch

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return self.build(backbone, len(portion.train.class_names), norm)

    def prepare(self, backbone: Backbone, folders: Folders) -> Prepared:
        """Open all images, load the weights into the network and prove it on a fixed image.

        BackboneError if no network can be built on the backbone.
        """
        from transfer.finetuning.norms import norm_for

        if reason := self.unfit(backbone):
            raise BackboneError(f"{backbone.name}: no network can be built on it: {reason}")
        process = this_process()
        norm = norm_for(self.recipe.synchronized_norm, process.device, process.num_processes)
        images = self.portion(folders, "trainval", "test")
        differences = self.prove(self.initial(backbone, images, norm, 0), backbone)
        held_out = self.portion(folders, "train", "val") if self.learning_rates else None
        return Prepared(backbone, norm, differences, images, held_out)

    def run(self, prepared: Prepared, folders: Folders, seed: int) -> Any:
        """Return the predictions on test after training on all images.

        If several learning rates are given, they are compared first.
        """
        from transfer.finetuning.schedule import search_learning_rates

        metric = self.primary_metric

        def score(rate: float) -> float:
            predictions = train(prepared.held_out or prepared.images, rate, f"rate-{rate:g}")
            return self.metrics(predictions)[metric] if this_process().is_main else math.nan

        train = partial(self.train, prepared, folders, seed)
        rates = self.learning_rates if prepared.held_out is not None else ()
        scores = search_learning_rates(rates, score, metric)
        best = max(scores, key=lambda rate: scores[rate], default=self.recipe.learning_rate)
        predictions = train(prepared.images, best, "all")
        held_out = {f"{rate:g}": score for rate, score in scores.items()}
        return replace(predictions, details={**predictions.details, f"held_out_{metric}": held_out})

    def train(
        self,
        prepared: Prepared,
        folders: Folders,
        seed: int,
        portion: Portion,
        rate: float,
        name: str,
    ) -> Any:
        """Train on a portion's images; return the predictions of the last weights for its test."""
        recipe = replace(self.recipe, learning_rate=rate)
        network = self.initial(prepared.backbone, portion, prepared.norm, seed)
        images = portion.train.fingerprint
        same = training_hash(prepared, recipe, seed, engine=self.engine, images=images)
        folder = folders.work / f"{name}-{same}"
        training, found = self.train_and_test(network, portion, recipe, seed, folder, folders)
        details = {
            "norm": prepared.norm,
            "num_processes": this_process().num_processes,
            "largest_difference_of_maps": prepared.differences,
            "learning_rate": rate,
            "training": asdict(training),
            "num_test": len(portion.test),
        }
        return replace(found, details={**details, **found.details})


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
        return f"the {backbone.stem} stem has another stride: {strides}"
    if "-heads" in backbone.arch:
        return f"{backbone.arch} has several layer4; give the file of one head"
    return ""


def training_hash(
    prepared: Prepared, recipe: FineTuningRecipe, seed: int, *, engine: str, images: str
) -> str:
    """Return a hash of all that determines the weights; a training resumes only its own state.

    images: fingerprint of the training images.
    """
    parts = [
        CODE_VERSION,
        engine,
        prepared.norm,
        prepared.backbone.sha256,
        images,
        asdict(recipe),
        seed,
        this_process().num_processes,
    ]
    return content_hash(parts, 12)
