"""Semantic segmentation of VOC 2012, fine-tuning the whole network.

CO2 Table 3 (Wei et al., ICLR 2021, arXiv:2010.02217, sections 3.4 and A.2), with MoCo's network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

from transfer.backbone import Backbone
from transfer.convert.architectures import PLAIN, WIDE
from transfer.datasets.catalog import open_segmented
from transfer.datasets.segmented import Segmented, read_mask
from transfer.finetuning.length import at_schedule
from transfer.finetuning.options import TrainingOptions
from transfer.frozen.pass_hours import FORWARD_COST
from transfer.running.folders import Folders
from transfer.running.measured_rates import ASSUMED, Rates
from transfer.running.processes import this_process
from transfer.segmentation.recipe import VOC_FCN, VOC_FCN_MOCO, SegmentationRecipe
from transfer.tasks.task import PlannedTask, TaskDefaults, mean_of_three, wall_time

if TYPE_CHECKING:
    from transfer.finetuning.norms import Norm
    from transfer.finetuning.prepared import Prepared
    from transfer.galleries.tile import Tile
    from transfer.segmentation.iou import Overlap
    from transfer.segmentation.network import FCN

CODE_VERSION = 1  # part of every training's identity: raise it when the weights would change
ENGINE = "mmsegmentation"
IMAGES_PER_GPU_SECOND = 20.0
"""Training speed of a ResNet-50 in float32 on crops of 513 px. It is assumed, not measured: the
arithmetic of a crop is about a fifth of that of a Faster R-CNN's image."""


@dataclass(frozen=True, eq=False)
class TrainAndTestMasks:
    """Training and test images of one training: all of them, or those of the rate search."""

    train: Segmented
    test: Segmented


@dataclass(frozen=True, eq=False)
class Predicted:
    """Predicted masks of a split, in files, with details of the training."""

    folder: Path
    split: Segmented
    details: Mapping[str, object] = field(default_factory=dict)

    @cached_property
    def overlap(self) -> Overlap:
        """Return the scores over the pixels of all images together."""
        import numpy as np

        from transfer.segmentation.iou import confusion, overlap
        from transfer.segmentation.predict import prediction_path

        num_classes = len(self.split.class_names)
        counts = np.zeros((num_classes, num_classes), dtype=np.int64)
        for i in range(len(self.split)):
            predicted = read_mask(prediction_path(self.folder, self.split, i))
            counts += confusion(predicted, self.split.mask(i), num_classes)
        return overlap(counts)


@dataclass(frozen=True, kw_only=True)
class Segmentation(TaskDefaults):
    """A fully convolutional network on the backbone, trained in all layers, tested at full size."""

    heading: ClassVar[str] = "Detection and segmentation"
    primary_metric: ClassVar[str] = "mIoU"

    protocol: str
    recipe: SegmentationRecipe
    dataset: str = "voc12_seg"
    learning_rates: tuple[float, ...] = ()
    """Learning rates to compare on a held-out part of the training images; none: the recipe's."""

    @property
    def engine(self) -> str:
        """Return the library that builds the network."""
        return ENGINE

    def datasets(self) -> tuple[str, ...]:
        """Return the keys of the data sets it reads."""
        return (self.dataset,)

    def at_schedule(self, schedule: str) -> Self:
        """Return the protocol with a share of the iterations; smoke: with a narrow network."""
        return replace(self, recipe=at_schedule(self.recipe, schedule))

    def for_backbone(self, backbone: Backbone) -> Self:
        """Return the protocol with the backbone's pixel scale; the image size is its own."""
        mean, std = backbone.input.mean, backbone.input.std
        return replace(self, recipe=replace(self.recipe, pixel_mean=mean, pixel_std=std))

    def with_options(self, options: TrainingOptions) -> Self:
        """Return the protocol with the user's options; a departure from it changes the hash."""
        return replace(
            self,
            recipe=options.applied(self.recipe),
            learning_rates=options.searched_rates,
        )

    def num_processes(self, options: TrainingOptions) -> int:
        """Return the number of processes of the training."""
        return options.num_processes(self.recipe.batch_size)

    def unfit(self, backbone: Backbone) -> str:
        """Return why a backbone cannot carry the network; empty if it can."""
        from transfer.finetuning.prepared import unfit

        if backbone.arch in WIDE:
            return f"mmsegmentation's ResNet is built as {', '.join(PLAIN)}, not {backbone.arch}"
        return unfit(backbone, "layer4 would not have the protocol's stride of 16")

    @property
    def trains_backbone(self) -> bool:
        """Return True: the whole network is fine-tuned."""
        return True

    @property
    def distributed_training(self) -> SegmentationRecipe:
        """Return the recipe, whose batch is divided among GPUs."""
        return self.recipe

    def gpu_hours(self, backbone: Backbone, rates: Rates = ASSUMED) -> float:
        """Return the estimated hours of training on one GPU; a test is short beside it."""
        recipe = self.recipe
        cost = FORWARD_COST.get(backbone.arch, 1.0) * (recipe.crop_px / 513) ** 2
        images = recipe.iterations * recipe.batch_size
        speed = self.measured_speed(rates) or IMAGES_PER_GPU_SECOND
        return (1 + len(self.learning_rates)) * cost * images / speed / 3600

    def measured_speed(self, rates: Rates) -> float:
        """Return the measured crops of 513 px per second of a training; 0 if there is none."""
        return rates.trained_per_second("voc12_seg_fcn", self.recipe.precision)

    def plan_notes(
        self, planned: Sequence[PlannedTask[Self]], options: TrainingOptions, num_gpus: int
    ) -> list[str]:
        """Return hours and wall time of the segmentation networks of a plan."""
        hours = sum(row.gpu_hours for row in planned)
        source = (
            f"if a ResNet-50 trains on {IMAGES_PER_GPU_SECOND:.0f} crops of 513 px a second "
            "(assumed, not measured)"
        )
        if all(row.task.measured_speed(row.rates) for row in planned):
            source = f"({planned[0].rates.source})"
        return [
            f"segmentation: about {hours:.1f} GPU hours {source}; "
            f"{wall_time(planned, options, num_gpus)}",
            *mean_of_three(planned, "voc12_seg_fcn"),
        ]

    def prepare(self, backbone: Backbone, folders: Folders) -> Prepared[TrainAndTestMasks]:
        """Find all images and masks, load the backbone into a network and check its maps."""
        from transfer.finetuning.prepared import prepare_training
        from transfer.segmentation.proof import prove

        return prepare_training(
            backbone,
            self.recipe,
            self.unfit(backbone),
            open_portion=partial(self.portion, folders),
            build=lambda images, norm: self.initial(backbone, images.train, norm, folders, seed=0),
            prove=lambda network: prove(network, backbone.state_dict, backbone.arch, self.recipe),
            searches=bool(self.learning_rates),
        )

    def portion(self, folders: Folders, train: str, test: str) -> TrainAndTestMasks:
        """Return two checked splits, without the broken images that the user tolerates."""
        from transfer.datasets.unchanged import usable_split

        learned, tested = (
            usable_split(folders, self.dataset, split, opened)
            for split in (train, test)
            for opened in [open_segmented(self.dataset, folders.data, split)]
        )
        return TrainAndTestMasks(learned, tested)

    def initial(
        self, backbone: Backbone, split: Segmented, norm: Norm, folders: Folders, *, seed: int
    ) -> FCN:
        """Return the network before training; torch's global generator keeps its state."""
        import torch

        from transfer.segmentation.network import build_network, load_backbone

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = build_network(
                self.recipe,
                arch=backbone.arch,
                num_classes=len(split.class_names),
                norm=norm,
                log=folders.work / f"mmengine-{this_process().rank}.log",
            )
        load_backbone(network, backbone.state_dict)
        return network

    def run(self, prepared: Prepared[TrainAndTestMasks], folders: Folders, seed: int) -> Predicted:
        """Return the predictions on test after training on all images.

        If several learning rates are given, they are compared first.
        """
        from transfer.finetuning.learning_rate_search import search_then_train

        return search_then_train(
            prepared,
            self.learning_rates,
            self.recipe.learning_rate,
            train=partial(self.train, prepared, folders, seed),
            score=lambda predicted: predicted.overlap.mean,
            metric="mIoU",
        )

    def train(
        self,
        prepared: Prepared[TrainAndTestMasks],
        folders: Folders,
        seed: int,
        portion: TrainAndTestMasks,
        rate: float,
        name: str,
    ) -> Predicted:
        """Train on a portion's images; return the predictions of the last weights for its test."""
        from transfer.finetuning.prepared import training_details, training_hash
        from transfer.segmentation.predict import predict
        from transfer.segmentation.train import train as train_network

        process = this_process()
        recipe = replace(self.recipe, learning_rate=rate)
        network = self.initial(prepared.backbone, portion.train, prepared.norm, folders, seed=seed)
        images = portion.train.fingerprint
        same = training_hash(
            prepared, recipe, seed, code_version=CODE_VERSION, engine=ENGINE, images=images
        )
        folder = folders.work / f"{name}-{same}"
        training = train_network(
            network, portion.train, recipe, seed=seed, folder=folder, process=process
        )
        predictions = folder / "predictions"
        predict(network, portion.test, predictions, process)
        details = {
            **training_details(prepared, recipe, training),
            "masks": list(portion.train.notes),
            "num_train": len(portion.train),
            "num_test": len(portion.test),
            "predictions": predictions.relative_to(folders.work).as_posix(),
        }
        return Predicted(predictions, portion.test, details)

    def metrics(self, predicted: Predicted) -> dict[str, float]:
        """Return mIoU in percent."""
        return {"mIoU": predicted.overlap.mean}

    def details(self, predicted: Predicted) -> dict[str, object]:
        """Return details of the training and the IoU of each class, null if it does not occur."""
        scores = predicted.overlap
        names = predicted.split.class_names
        return {
            **predicted.details,
            "IoU_per_class": dict(zip(names, scores.classes, strict=True)),
            "num_classes_counted": sum(value is not None for value in scores.classes),
            "pixel_accuracy": scores.pixel_accuracy,
            "mean_accuracy": scores.mean_accuracy,
        }

    def gallery(self, predicted: Predicted, folders: Folders) -> list[Tile]:
        """Return pictures of predicted masks beside the truth."""
        from transfer.galleries.segments import segments
        from transfer.segmentation.predict import prediction_path

        split = predicted.split
        return segments(split, lambda i: read_mask(prediction_path(predicted.folder, split, i)))


TASKS = {
    "voc12_seg_fcn": Segmentation(protocol="co2-2021/1", recipe=VOC_FCN),
    "voc12_seg_fcn@moco": Segmentation(
        protocol="moco-2020/1", recipe=VOC_FCN_MOCO, by_default=False
    ),
}
