"""The base of detection and segmentation: all layers of a network are trained by a recipe.

A task supplies its images, its network, samples, training and test; here is the order of the steps:
verify the weights, compare learning rates if several are given, train.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, cast

from pretrain.running.atomic_files import content_hash
from pretrain.running.console import print_line
from pretrain.running.processes import tf32_convolutions, this_process
from transfer.datasets.catalog import DATASETS
from transfer.datasets.expected import DataError
from transfer.datasets.folders import Folders
from transfer.datasets.images import unchanged
from transfer.datasets.splits import usable_split
from transfer.encoders.architectures import has_max_pool, is_large
from transfer.encoders.encoder import Encoder
from transfer.finetuning.options import TrainingOptions, length_fraction, of_length
from transfer.finetuning.schedule import AnyRecipe, FineTuningRecipe
from transfer.hours import IMAGE_GB
from transfer.tasks.task import Task

if TYPE_CHECKING:
    from transfer.finetuning.norms import Norm
    from transfer.finetuning.state import Training
    from transfer.finetuning.stream import Samples

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

    backbone: Encoder
    norm: Norm
    images: Portion
    held_out: Portion | None
    """Two parts of the training images, to compare learning rates on; None without a search."""


@dataclass(frozen=True, kw_only=True)
class RecipeTraining(Task, Generic[AnyRecipe]):
    """A task that trains all layers of a network and tests its last weights."""

    heading: ClassVar[str] = "Detection and segmentation"
    trains_backbone: ClassVar[bool] = True
    supported_options: ClassVar[frozenset[str]] = frozenset(vars(TrainingOptions())) - {"engine"}

    recipe: AnyRecipe
    learning_rates: tuple[float, ...] = ()
    """Learning rates to compare on a held-out part of the training images; none: the recipe's."""

    def at_schedule(self, schedule: str) -> Self:
        """Return the protocol with a share of the iterations; smoke: with a tiny network."""
        if schedule == "paper":
            return self
        own, share = self.recipe, length_fraction(schedule)
        return replace(self, recipe=own.tiny() if schedule == "smoke" else of_length(own, share))

    def for_backbone(self, backbone: Encoder) -> Self:
        """Return the protocol with the backbone's pixel scale; the image size is its own."""
        mean, std = backbone.input.mean, backbone.input.std
        return replace(self, recipe=replace(self.recipe, pixel_mean=mean, pixel_std=std))

    def with_options(self, options: TrainingOptions) -> Self:
        """Return the protocol with the user's options; a departure from it changes the hash."""
        recipe, given = options.applied(self.recipe), options.learning_rates
        compared = given or self.learning_rates if len(given) != 1 else ()
        return replace(self, recipe=recipe, learning_rates=compared)

    def num_processes(self, options: TrainingOptions) -> int:
        """Return the number of processes of the training."""
        return options.num_processes(self.recipe.batch_size)

    @property
    def distributed_training(self) -> AnyRecipe:
        """Return the recipe, whose batch is divided among GPUs."""
        return self.recipe

    @property
    @abstractmethod
    def work(self) -> str:
        """Return its kind of work in `hours`, without the precision."""

    @property
    @abstractmethod
    def relative_size(self) -> float:
        """Return the side of its images relative to those of the kind of work."""

    def units(self) -> dict[str, float]:
        """Return the images of all trainings; a test is short beside them."""
        images = self.recipe.iterations * self.recipe.batch_size * (1 + len(self.learning_rates))
        return {f"{self.work} {self.recipe.precision}": images * self.relative_size**2}

    def memory_gb(self, num_processes: int) -> float:
        """Return a lower bound in GB on the GPU memory of a training step on a ResNet-50."""
        images = self.recipe.batch_size / num_processes / self.recipe.accumulated
        whole = IMAGE_GB[self.work.partition("@")[0]] * images * self.relative_size**2
        return whole if self.recipe.precision == "float32" else whole / 2

    @abstractmethod
    def open(self, data: Path, split: str) -> Any:
        """Open a split of the data set."""

    def portion(self, folders: Folders, train: str, test: str) -> Portion:
        """Return two checked splits, without the broken images that the user tolerates.

        DataError if there is nothing to learn in the first, or nothing to find in the second.
        """
        learned, tested = (
            usable_split(folders, self.dataset, split, self.open(folders.data, split))
            for split in (train, test)
        )
        reasons = {train: self.why_not_learned(learned), test: self.why_not_tested(tested)}
        advice = DATASETS[self.dataset].how_to_get
        if test != "test":
            rate = f"--learning-rates {self.recipe.learning_rate:g}"
            advice = f"A single rate, such as {rate}, needs no held-out images"
        for split, why in reasons.items():
            if why:
                raise DataError(f"{self.dataset}, {split}: {why}. {advice}")
        return Portion(learned, tested)

    def why_not_learned(self, images: Any) -> str:
        """Return why there is nothing to learn from images, with counts; empty if there is."""
        return ""

    def why_not_tested(self, images: Any) -> str:
        """Return why there is nothing to find on images, with counts; empty if there is."""
        return ""

    @abstractmethod
    def build(self, backbone: Encoder, num_classes: int, norm: Norm, folders: Folders) -> Any:
        """Return the network with the backbone's weights; torch's generator draws the others."""

    @abstractmethod
    def samples(self, images: Any, seed: int) -> Samples[Any]:
        """Return the randomly transformed samples of training images."""

    @abstractmethod
    def training(self, network: Any, recipe: AnyRecipe, folder: Path) -> Training:
        """Return the training of a network, which is on its device, with its state in a folder."""

    @abstractmethod
    def test(self, network: Any, portion: Portion, folder: Path, folders: Folders) -> Any:
        """Return the predictions of the trained network for the test images.

        folder: that of the training's state.
        """

    def prepare(self, backbone: Encoder, folders: Folders) -> Prepared:
        """Open all images, and choose the kind of norm layers."""
        from transfer.finetuning.loop import use_expandable_segments
        from transfer.finetuning.norms import norm_for

        if self.varied_image_sizes:
            use_expandable_segments()
        process = this_process()
        norm = norm_for(self.recipe.synchronized_norm, process.device, process.num_processes)
        images = self.portion(folders, "trainval", "test")
        held_out = self.portion(folders, "train", "val") if self.learning_rates else None
        return Prepared(backbone, norm, images, held_out)

    def run(self, prepared: Prepared, folders: Folders, seed: int) -> Any:
        """Return the predictions on test after training on all images.

        If several learning rates are given, they are compared first.
        """
        from transfer.finetuning.schedule import search_learning_rates

        metric = self.primary_metric

        def score(rate: float) -> float:
            predictions = train(cast("Portion", prepared.held_out), rate, f"rate-{rate:g}")
            return self.metrics(predictions)[metric] if this_process().is_main else math.nan

        train = partial(self.train, prepared, folders, seed)
        scores = search_learning_rates(self.learning_rates, score, metric)
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
        import torch

        from transfer.finetuning import loop
        from transfer.finetuning.state import summary

        recipe, process = replace(self.recipe, learning_rate=rate), this_process()
        backbone = prepared.backbone
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            num_classes = len(portion.train.class_names)
            network = self.build(backbone, num_classes, prepared.norm, folders)
        differences = network.verify(backbone.state_dict, backbone.arch)
        if process.is_main:
            placed, worst, norm = len(backbone.state_dict), max(differences.values()), prepared.norm
            print_line(
                "weights", f"{placed} tensors in place, maps within {worst:.0e}; norm {norm}"
            )
        images = portion.train.fingerprint
        # the arithmetic of an encoder that is trained is the recipe's
        engine = self.engine if self.trains_backbone else f"{self.engine} {backbone.precision}"
        same = training_hash(prepared, recipe, seed, engine=engine, images=images)
        folder = folders.work / f"{name}-{same}"
        loop.move_to_device(network, process.device)
        samples, one_size = self.samples(portion.train, seed), not self.varied_image_sizes
        training = self.training(network, recipe, folder)
        with unchanged(portion.train, training):
            loop.train(training, samples, seed=seed, process=process, one_size=one_size)
        learned = asdict(summary(training))
        del training  # its momenta would fill the device during the test
        found = self.test(network, portion, folder, folders)
        # a plain norm sees the images of its process alone
        norm_groups = process.num_processes if prepared.norm == "BN" else 1
        details = {
            "norm": prepared.norm,
            "num_processes": process.num_processes,
            "tensors_placed": len(backbone.state_dict),
            "largest_difference_of_maps": differences,
            "images_per_norm_statistic": recipe.batch_size // (recipe.accumulated * norm_groups),
            "learning_rate": rate,
            "tf32_convolutions": recipe.precision == "float32" and tf32_convolutions(),
            "training": learned,
            "num_train": samples.num_images,
            "num_test": len(portion.test),
        }
        return replace(found, details={**details, **found.details})


def why_not_whole(backbone: Encoder, strides: str) -> str:
    """Return why a backbone cannot be fine-tuned as a whole; empty if it can.

    strides: clause of the message on the strides that a backbone with another stem does not have.
    """
    if not backbone.is_resnet:
        return (
            f"{backbone.arch} is evaluated by tasks on frozen features; these papers' networks "
            "need the four stages of a ResNet"
        )
    if backbone.stem != "imagenet":
        halved = is_large(backbone.stem) or has_max_pool(backbone.stem)
        kept = "half the image's size" if halved else "the image's full size"
        return f"the {backbone.stem} stem keeps {kept}: {strides}"
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
