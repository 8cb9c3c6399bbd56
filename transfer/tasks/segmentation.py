"""Semantic segmentation of VOC 2012, fine-tuning the whole network.

CO2 Table 3 (Wei et al., ICLR 2021, arXiv:2010.02217, sections 3.4 and A.2), with MoCo's network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Self

from pretrain.running.processes import this_process
from transfer.backbone import Backbone
from transfer.convert.architectures import PLAIN, WIDE
from transfer.datasets.catalog import open_segmented
from transfer.datasets.segmented import Segmented, read_mask
from transfer.finetuning.options import TrainingOptions
from transfer.running.folders import Folders
from transfer.running.measured_rates import Rates
from transfer.segmentation.recipe import VOC_FCN, VOC_FCN_MOCO, SegmentationRecipe
from transfer.tasks.recipe_training import (
    Prepared,
    RecipeTraining,
    mean_of_three,
    training_details,
    why_not_whole,
)
from transfer.tasks.task import PlannedTask, Task

if TYPE_CHECKING:
    from transfer.finetuning.norms import Norm
    from transfer.galleries.tile import Tile
    from transfer.segmentation.iou import Confusion, Overlap
    from transfer.segmentation.network import FCN

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
    def confusions(self) -> Confusion:
        """Return the confusion matrix (n, L, L) of each image."""
        import numpy as np

        from transfer.segmentation.iou import confusion
        from transfer.segmentation.train import prediction_path

        num_classes = len(self.split.class_names)
        return np.stack(
            [
                confusion(
                    read_mask(prediction_path(self.folder, self.split, i)),
                    self.split.mask(i),
                    num_classes,
                )
                for i in range(len(self.split))
            ]
        )

    @cached_property
    def overlap(self) -> Overlap:
        """Return the scores over the pixels of all images together."""
        from transfer.segmentation.iou import overlap

        return overlap(self.confusions.sum(axis=0))


@dataclass(frozen=True, kw_only=True)
class Segmentation(RecipeTraining[SegmentationRecipe], Task):
    """A fully convolutional network on the backbone, trained in all layers, tested at full size."""

    primary_metric: ClassVar[str] = "mIoU"

    dataset: str = "voc12_seg"

    @property
    def engine(self) -> str:
        """Return the library that builds the network."""
        return ENGINE

    def unfit(self, backbone: Backbone) -> str:
        """Return why a backbone cannot carry the network; empty if it can."""
        if backbone.arch in WIDE:
            return f"mmsegmentation's ResNet is built as {', '.join(PLAIN)}, not {backbone.arch}"
        return why_not_whole(backbone, "layer4 would not have the protocol's stride of 16")

    def relative_size(self) -> float:
        """Return the side of the crops relative to 513 px."""
        return self.recipe.crop_px / 513

    def assumed_speed(self) -> float:
        """Return the assumed crops per second."""
        return IMAGES_PER_GPU_SECOND

    def image_gb(self) -> float:
        """Return what the network keeps of a crop of 513 px for its gradients."""
        return 0.53

    def measured_speed(self, rates: Rates) -> float:
        """Return the measured crops of 513 px per second of a training; 0 if there is none."""
        return rates.trained_per_second("voc12_seg_fcn", self.recipe.precision)

    def plan_notes(
        self, planned: Sequence[PlannedTask[Self]], options: TrainingOptions, num_gpus: int
    ) -> list[str]:
        """Return hours and wall time of the segmentation networks of a plan."""
        assumed = (
            f"if a ResNet-50 trains on {IMAGES_PER_GPU_SECOND:.0f} crops of 513 px a second "
            "(assumed, not measured)"
        )
        line = self.hours_note("segmentation", planned, assumed, options, num_gpus)
        return [line, *mean_of_three(planned, "voc12_seg_fcn")]

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
        self, backbone: Backbone, train: Segmented, norm: Norm, folders: Folders, *, seed: int
    ) -> FCN:
        """Return the network before training; torch's global generator keeps its state."""
        import torch

        from transfer.segmentation.network import build_network, load_backbone

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = build_network(
                self.recipe,
                arch=backbone.arch,
                num_classes=len(train.class_names),
                norm=norm,
                log=folders.work / f"mmengine-{this_process().rank}.log",
            )
        load_backbone(network, backbone.state_dict)
        return network

    def prove(self, network: FCN, backbone: Backbone) -> dict[str, float]:
        """Return the largest difference of each stage's map; ValueError if one is too large."""
        from transfer.segmentation.proof import prove

        return prove(network, backbone.state_dict, backbone.arch, self.recipe)

    def score(self, predictions: Predicted) -> float:
        """Return mIoU in percent."""
        return predictions.overlap.mean

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
        from transfer.segmentation.train import predict
        from transfer.segmentation.train import train as train_network

        process = this_process()
        recipe = replace(self.recipe, learning_rate=rate)
        network = self.initial(prepared.backbone, portion.train, prepared.norm, folders, seed=seed)
        folder = self.training_folder(prepared, folders, recipe, seed, portion.train, name)
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
        from transfer.outcomes import resampled
        from transfer.segmentation.iou import resampled_overlap

        scores, confusions = predicted.overlap, predicted.confusions
        names = predicted.split.class_names
        return {
            **predicted.details,
            "IoU_per_class": dict(zip(names, scores.classes, strict=True)),
            "num_classes_counted": sum(value is not None for value in scores.classes),
            "pixel_accuracy": scores.pixel_accuracy,
            "mean_accuracy": scores.mean_accuracy,
            **resampled({"mIoU": resampled_overlap(confusions)}, len(confusions)),
        }

    def gallery(self, predicted: Predicted, folders: Folders) -> list[Tile]:
        """Return pictures of predicted masks beside the truth."""
        from transfer.galleries.segments import segments
        from transfer.segmentation.train import prediction_path

        split = predicted.split
        return segments(split, lambda i: read_mask(prediction_path(predicted.folder, split, i)))


TASKS = {
    "voc12_seg_fcn": Segmentation(protocol="co2-2021/1", recipe=VOC_FCN),
    "voc12_seg_fcn@moco": Segmentation(
        protocol="moco-2020/1", recipe=VOC_FCN_MOCO, by_default=False
    ),
}
