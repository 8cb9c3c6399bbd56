"""Semantic segmentation of VOC 2012: the whole network is fine-tuned.

CO2 Table 3 (Wei et al., ICLR 2021, arXiv:2010.02217), with MoCo's network.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np
import torch

from transfer.backbone import Backbone
from transfer.datasets.catalog import open_segmented
from transfer.datasets.segmented import Segmented, read_mask
from transfer.folders import Folders
from transfer.processes import this_process
from transfer.segmentation.iou import Overlap, confusion, overlap
from transfer.segmentation.network import FCN, build_network, load_backbone
from transfer.segmentation.predict import predict, prediction_path
from transfer.segmentation.proof import prove
from transfer.segmentation.recipe import SegmentationRecipe
from transfer.segmentation.train import train
from transfer.training.length import at_schedule
from transfer.training.norms import Norm, norm_for
from transfer.training.options import TrainingOptions
from transfer.training.prepared import (
    Prepared,
    identity,
    require_fit,
    say_proven,
    told,
    unfit,
)
from transfer.training.rates import best, by_name, tried

CODE_VERSION = 1  # part of every training's identity: raise it when the weights would change
ENGINE = "mmsegmentation"


@dataclass(frozen=True, eq=False)
class Portion:
    """What a network learns from, and what it is tested on."""

    train: Segmented
    test: Segmented


@dataclass(frozen=True, eq=False)
class Predicted:
    """The class of each pixel of each image of a split, in files, and how they came about."""

    folder: Path
    split: Segmented
    details: Mapping[str, object] = field(default_factory=dict)

    @cached_property
    def overlap(self) -> Overlap:
        """Of all images together."""
        num_classes = len(self.split.class_names)
        counts = np.zeros((num_classes, num_classes), dtype=np.int64)
        for i in range(len(self.split)):
            predicted = read_mask(prediction_path(self.folder, self.split, i))
            counts += confusion(predicted, self.split.mask(i), num_classes)
        return overlap(counts)


@dataclass(frozen=True, kw_only=True)
class Segmentation:
    """A fully convolutional network on the backbone, all layers trained, tested at full size."""

    protocol: str
    recipe: SegmentationRecipe
    dataset: str = "voc12_seg"
    learning_rates: tuple[float, ...] = ()
    """Tried on a held-out part of the training images; none: the recipe's."""

    @property
    def engine(self) -> str:
        """What builds the network."""
        return ENGINE

    def datasets(self) -> tuple[str, ...]:
        """Data sets it needs."""
        return (self.dataset,)

    def at(self, schedule: str) -> Self:
        """The same network, trained for a share of the iterations; smoke: a narrow one."""
        return replace(self, recipe=at_schedule(self.recipe, schedule))

    def fitted(self, backbone: Backbone) -> Self:
        """With the backbone's pixel scale; the image size is the protocol's own."""
        mean, std = backbone.input.mean, backbone.input.std
        return replace(self, recipe=replace(self.recipe, pixel_mean=mean, pixel_std=std))

    def asked(self, options: TrainingOptions) -> Self:
        """As the user wants it run; what leaves the protocol changes its hash."""
        return replace(
            self,
            recipe=options.applied(self.recipe),
            learning_rates=options.searched_rates,
        )

    def num_processes(self, options: TrainingOptions) -> int:
        """In which it is trained."""
        return options.num_processes(self.recipe.batch_size)

    def unfit(self, backbone: Backbone) -> str:
        """Why a backbone cannot carry the network; empty if it can."""
        return unfit(backbone, "layer4 would not have the protocol's stride of 16")

    def prepare(self, backbone: Backbone, folders: Folders) -> Prepared[Portion]:
        """Find all images and masks, put the weights in their place and prove it."""
        require_fit(backbone, self.unfit(backbone))
        process = this_process()
        norm = norm_for(self.recipe.synchronized_norm, process.device, process.num_processes)
        images = self.portion(folders, "trainval", "test")
        network = self.initial(backbone, images.train, norm, folders, seed=0)
        differences = prove(network, backbone.state_dict, backbone.arch, self.recipe)
        say_proven(backbone, differences, norm)
        held_out = self.portion(folders, "train", "val") if self.learning_rates else None
        return Prepared(backbone, norm, differences, images, held_out)

    def portion(self, folders: Folders, train: str, test: str) -> Portion:
        """Two splits as they were checked, without the broken images that the user tolerates."""
        learned, tested = (
            folders.usable(self.dataset, split, open_segmented(self.dataset, folders.data, split))
            for split in (train, test)
        )
        return Portion(learned, tested)

    def initial(
        self, backbone: Backbone, split: Segmented, norm: Norm, folders: Folders, *, seed: int
    ) -> FCN:
        """The network before training; the global generator is kept."""
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

    def run(self, prepared: Prepared[Portion], folders: Folders, seed: int) -> Predicted:
        """Choose the rate if several are given, train on all images, look at the test images."""
        found = self.tried(prepared, folders, seed)
        rate = best(found, self.recipe.learning_rate)
        done = self.trained(prepared, prepared.images, folders, seed, rate, "all")
        return replace(done, details={**done.details, "held_out_mIoU": by_name(found)})

    def tried(self, prepared: Prepared[Portion], folders: Folders, seed: int) -> dict[float, float]:
        """mIoU on held-out training images by learning rate; empty where none are to be tried."""
        portion = prepared.held_out
        if portion is None:
            return {}

        def score(rate: float) -> float:
            done = self.trained(prepared, portion, folders, seed, rate, f"rate-{rate:g}")
            return done.overlap.mean if this_process().speaks else math.nan

        return tried(self.learning_rates, score, "mIoU")

    def trained(
        self,
        prepared: Prepared[Portion],
        portion: Portion,
        folders: Folders,
        seed: int,
        rate: float,
        name: str,
    ) -> Predicted:
        """Train on one part's images with a learning rate, predict with the last weights."""
        process = this_process()
        recipe = replace(self.recipe, learning_rate=rate)
        network = self.initial(prepared.backbone, portion.train, prepared.norm, folders, seed=seed)
        images = portion.train.fingerprint
        same = identity(
            prepared, recipe, seed, code_version=CODE_VERSION, engine=ENGINE, images=images
        )
        folder = folders.work / f"{name}-{same}"
        training = train(network, portion.train, recipe, seed=seed, folder=folder, process=process)
        predictions = folder / "predictions"
        predict(network, portion.test, predictions, process)
        details = {
            **told(prepared, recipe, training),
            "masks": list(portion.train.notes),
            "num_train": len(portion.train),
            "num_test": len(portion.test),
            "predictions": predictions.relative_to(folders.work).as_posix(),
        }
        return Predicted(predictions, portion.test, details)

    def metrics(self, predicted: Predicted) -> dict[str, float]:
        """Percent."""
        return {"mIoU": predicted.overlap.mean}

    def details(self, predicted: Predicted) -> dict[str, object]:
        """How it was trained, and the IoU of each class, null where a class does not occur."""
        found = predicted.overlap
        names = predicted.split.class_names
        return {
            **predicted.details,
            "IoU_per_class": dict(zip(names, found.classes, strict=True)),
            "num_classes_counted": sum(value is not None for value in found.classes),
            "pixel_accuracy": found.pixel_accuracy,
            "mean_accuracy": found.mean_accuracy,
        }
