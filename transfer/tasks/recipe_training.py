"""Base class of detection and segmentation tasks, which train all layers.

A task supplies images, network, samples, training and test. This module runs the steps in order:
verify the loaded weights, compare learning rates if several are given, train.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Self, cast

from pretrain.running.atomic_files import content_hash
from pretrain.running.console import print_line
from pretrain.running.processes import tf32_convolutions, this_process
from transfer.datasets.catalog import DATASETS, open_any
from transfer.datasets.expected import DataError
from transfer.datasets.folders import Folders
from transfer.datasets.images import unchanged
from transfer.datasets.splits import without
from transfer.encoders.encoder import Encoder
from transfer.finetuning.options import TrainingOptions, length_fraction, of_length
from transfer.finetuning.schedule import AnyRecipe, FineTuningRecipe
from transfer.hours import IMAGE_GB
from transfer.tasks.task import Task, TrainingData

if TYPE_CHECKING:
    from transfer.finetuning.norms import Norm
    from transfer.finetuning.stream import Samples

CODE_VERSION = 1
"""Part of each training's hash: raise it when the weights change."""


@dataclass(frozen=True, kw_only=True)
class RecipeTraining(Task, Generic[AnyRecipe]):
    """Base class of tasks that train all layers by a recipe."""

    heading: ClassVar[str] = "Detection and segmentation"
    trains_backbone: ClassVar[bool] = True
    supported_options: ClassVar[frozenset[str]] = frozenset(vars(TrainingOptions())) - {"engine"}

    recipe: AnyRecipe
    learning_rates: tuple[float, ...] = ()
    """Learning rates to compare on held-out images; empty: the recipe's."""

    def at_schedule(self, schedule: str) -> Self:
        """Return the protocol with fewer iterations; smoke: with a tiny network."""
        if schedule == "paper":
            return self
        if schedule == "smoke":
            return replace(self, recipe=self.recipe.tiny())
        return replace(self, recipe=of_length(self.recipe, length_fraction(schedule)))

    def for_backbone(self, backbone: Encoder) -> Self:
        """Return the protocol with the backbone's pixel mean and standard deviation."""
        mean, std = backbone.input.mean, backbone.input.std
        return replace(self, recipe=replace(self.recipe, pixel_mean=mean, pixel_std=std))

    def with_options(self, options: TrainingOptions) -> Self:
        """Return the protocol with the user's options; deviations change the hash."""
        recipe, rates = options.applied(self.recipe), options.learning_rates
        rates_to_compare = rates or self.learning_rates if len(rates) != 1 else ()
        return replace(self, recipe=recipe, learning_rates=rates_to_compare)

    def num_processes(self, options: TrainingOptions) -> int:
        """Return the number of processes of the training."""
        return options.num_processes(self.recipe.batch_size)

    @property
    def distributed_training(self) -> AnyRecipe:
        """Return the recipe; its batch is divided among GPUs."""
        return self.recipe

    @property
    @abstractmethod
    def work(self) -> str:
        """Return the type of work, as named in `hours`, without the precision."""

    @property
    @abstractmethod
    def relative_size(self) -> float:
        """Return the image size relative to the one that `hours` assumes."""

    def units(self) -> dict[str, float]:
        """Return the images of all trainings; the short test is not counted."""
        num_images = (
            self.recipe.iterations * self.recipe.batch_size * (1 + len(self.learning_rates))
        )
        return {f"{self.work} {self.recipe.precision}": num_images * self.relative_size**2}

    def memory_gb(self, num_processes: int) -> float:
        """Return a lower bound in GB on the memory of one step.

        It holds for training a ResNet-50.
        """
        num_images = self.recipe.batch_size / num_processes / self.recipe.accumulated
        memory = IMAGE_GB[self.work.partition("@")[0]] * num_images * self.relative_size**2
        return memory if self.recipe.precision == "float32" else memory / 2

    def unusable_reason(self, images: Any, *, is_test: bool) -> str:
        """Return why images have nothing to learn, or to find in a test; empty if they have."""
        return ""

    @abstractmethod
    def build(self, backbone: Encoder, num_classes: int, norm: Norm) -> Any:
        """Return the network with the backbone's weights; torch draws the other weights.

        Called with a list of samples, it returns its losses. Its `optimizer` returns the optimizer
        for a recipe, and its `verify` checks the maps of the backbone.
        """

    @abstractmethod
    def samples(self, images: Any, seed: int) -> Samples[Any]:
        """Return randomly transformed training samples."""

    @abstractmethod
    def test(self, network: Any, data: TrainingData, folder: Path, folders: Folders) -> Any:
        """Return the predictions of the trained network for the test images.

        folder: contains the training's state.
        """

    def prepare(self, backbone: Encoder, folders: Folders) -> TrainingData:
        """Open all images; DataError if a split has nothing to learn or to find."""
        from transfer.finetuning.loop import use_expandable_segments

        if self.varied_image_sizes:
            use_expandable_segments()

        def opened(split: str, advice: str = "") -> Any:
            problem = partial(self.unusable_reason, is_test=split in ("test", "val"))
            return checked_split(folders, self.dataset, split, problem, advice)

        held_out = None
        if self.learning_rates:
            option = f"--learning-rates {self.recipe.learning_rate:g}"
            advice = f"A single learning rate, such as {option}, needs no held-out images"
            held_out = TrainingData(backbone, opened("train", advice), opened("val", advice))
        return TrainingData(backbone, opened("trainval"), opened("test"), held_out)

    def run(self, prepared: TrainingData, folders: Folders, seed: int) -> Any:
        """Train on all images and return the predictions for the test split.

        If several learning rates are given, they are compared first.
        """
        from transfer.finetuning.schedule import search_learning_rates

        metric = self.primary_metric

        def score(rate: float) -> float:
            held_out = cast("TrainingData", prepared.held_out)
            predictions = self.train(held_out, folders, seed, rate, f"rate-{rate:g}")
            return self.metrics(predictions)[metric] if this_process().is_main else math.nan

        scores = search_learning_rates(self.learning_rates, score, metric)
        best = max(scores, key=lambda rate: scores[rate], default=self.recipe.learning_rate)
        predictions = self.train(prepared, folders, seed, best, "all")
        held_out = {f"{rate:g}": score for rate, score in scores.items()}
        return replace(predictions, details={**predictions.details, f"held_out_{metric}": held_out})

    def train(self, data: TrainingData, folders: Folders, seed: int, rate: float, name: str) -> Any:
        """Train on images; return the predictions for the test images."""
        import torch

        from transfer.finetuning import loop
        from transfer.finetuning.norms import norm_for
        from transfer.finetuning.state import Training, summary

        recipe, process = replace(self.recipe, learning_rate=rate), this_process()
        norm = norm_for(recipe.synchronized_norm, process.device, process.num_processes)
        backbone = data.backbone
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = self.build(backbone, len(data.train.class_names), norm)
        differences = network.verify(backbone.state_dict, backbone.arch)
        if process.is_main:
            num_tensors, largest = len(backbone.state_dict), max(differences.values())
            print_line(
                "weights",
                f"{num_tensors} tensors loaded, maps differ by at most {largest:.0e}; norm {norm}",
            )
        # if the encoder is trained, the recipe sets its precision
        engine = self.engine if self.trains_backbone else f"{self.engine} {backbone.precision}"
        images = data.train.fingerprint
        digest = training_hash(backbone, norm, recipe, seed, engine=engine, images=images)
        folder = folders.work / f"{name}-{digest}"
        loop.move_to_device(network, process.device)
        samples, one_size = self.samples(data.train, seed), not self.varied_image_sizes
        training = Training(
            network=network,
            optimizer=network.optimizer(recipe),
            schedule=recipe,
            folder=folder,
            name=self.kind,
        )
        with unchanged(data.train, training):
            loop.train(training, samples, seed=seed, process=process, one_size=one_size)
        training_summary = summary(training)
        del training  # free the optimizer state before the test
        predictions = self.test(network, data, folder, folders)
        # plain batch norm uses only the images of its own process
        norm_groups = process.num_processes if norm == "BN" else 1
        precisions = [recipe.precision, *([] if self.trains_backbone else [backbone.precision])]
        details = {
            "norm": norm,
            "num_processes": process.num_processes,
            "tensors_placed": len(backbone.state_dict),
            "largest_difference_of_maps": differences,
            "images_per_norm_statistic": recipe.batch_size // (recipe.accumulated * norm_groups),
            "learning_rate": rate,
            "tf32_convolutions": "float32" in precisions and tf32_convolutions(),
            "training": training_summary,
            "num_train": samples.num_images,
            "num_test": len(data.test),
        }
        return replace(predictions, details={**details, **predictions.details})


def checked_split(
    folders: Folders, key: str, split: str, problem: Callable[[Any], str], advice: str = ""
) -> Any:
    """Return a split of a dataset, without the bad images that the user allows.

    Raises DataError with the advice if `problem` of the images is not empty.
    """
    opened: Any = open_any(key, folders.data, split)
    images = without(opened, folders.broken)
    if reason := problem(images):
        raise DataError(f"{key}, {split}: {reason}. {advice or DATASETS[key].how_to_get}")
    return images


def fine_tuning_unsupported_reason(backbone: Encoder, strides: str) -> str:
    """Return why a backbone cannot be fine-tuned; empty if it can.

    strides: clause of the message about the strides, for a backbone with a CIFAR stem.
    """
    if not backbone.is_resnet:
        return (
            f"{backbone.arch} is not supported: this protocol needs the four stages of a ResNet. "
            "Evaluate it with tasks on frozen features"
        )
    if backbone.stem != "imagenet":
        return f"the {backbone.stem} stem has a smaller stride than ImageNet's: {strides}"
    if "-heads" in backbone.arch:
        return f"{backbone.arch} has several layer4. Pass the backbone file of one head"
    return ""


def training_hash(
    backbone: Encoder, norm: Norm, recipe: FineTuningRecipe, seed: int, *, engine: str, images: str
) -> str:
    """Return a hash of everything that determines the weights.

    A training resumes only from a state with the same hash. images: fingerprint of the images.
    """
    fields = [
        CODE_VERSION,
        engine,
        norm,
        backbone.sha256,
        images,
        asdict(recipe),
        seed,
        this_process().num_processes,
    ]
    return content_hash(fields, 12)
