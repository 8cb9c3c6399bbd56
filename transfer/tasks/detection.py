"""Detection, instance segmentation and keypoints on COCO and VOC: the whole network is fine-tuned.

JCL Table 2 (Cai et al., NeurIPS 2020, arXiv:2009.14776), which LORAC's Table IV repeats, and CO2
Table 3 (Wei et al., ICLR 2021, arXiv:2010.02217).
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray

from transfer.backbone import Backbone
from transfer.datasets.catalog import open_scenes
from transfer.datasets.scenes import Scenes, usable_for_training
from transfer.detection.coco_ap import Kind, coco_ap
from transfer.detection.detect import detect
from transfer.detection.engines import EngineName, build_detector, engine_for
from transfer.detection.proof import prove
from transfer.detection.recipe import Recipe
from transfer.detection.results import Detections
from transfer.detection.sample import Detector
from transfer.detection.train import train
from transfer.detection.voc_ap import voc_ap
from transfer.folders import Folders
from transfer.processes import this_process
from transfer.training.length import at_schedule
from transfer.training.norms import Norm, norm_for
from transfer.training.options import EngineChoice, TrainingOptions
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
COCO_KINDS: dict[str, tuple[Kind, ...]] = {
    "boxes": ("bbox",),
    "masks": ("segm", "bbox"),
    "keypoints": ("keypoints", "bbox"),
}
"""COCO's kinds of average precision; the first is the table's."""
TABLE_METRICS = ("AP", "AP50", "AP75", "AP_area", "AP50_area", "AP75_area")
"""The rest stands in the record's details. On VOC, AP is that of 11 points, AP_area of all."""


@dataclass(frozen=True, eq=False)
class Portion:
    """What a detector learns from, and what it is tested on."""

    train: Scenes
    usable: NDArray[np.int64]
    """Indices of the training images that can be learned from."""
    test: Scenes


@dataclass(frozen=True, eq=False)
class Detected:
    """What was found on the images, and how."""

    found: list[Detections]
    scenes: Scenes
    kinds: tuple[Kind, ...]
    """COCO's kinds; none: VOC."""
    details: Mapping[str, object] = field(default_factory=dict)

    @cached_property
    def precisions(self) -> Mapping[Kind, Mapping[str, float]]:
        """By kind, the table's first: average precisions in percent, sizes and classes."""
        if not self.kinds:
            return {"bbox": voc_ap(self.found, self.scenes)}
        return coco_ap(self.found, self.scenes, self.kinds)

    @property
    def first(self) -> Kind:
        """The kind that the table shows."""
        return self.kinds[0] if self.kinds else "bbox"


@dataclass(frozen=True, kw_only=True)
class Detection:
    """A detector on the backbone, all layers trained, tested with its last weights."""

    dataset: str
    protocol: str
    recipe: Recipe
    learning_rates: tuple[float, ...] = ()
    """Tried on a held-out part of the training images; none: the recipe's."""
    engine_choice: EngineChoice = field(default="auto", metadata={"hashed": False})
    """Both engines are the same detector: the choice does not part columns, a note tells it."""

    @property
    def engine(self) -> EngineName:
        """What does the computing."""
        return engine_for(self.engine_choice)

    def datasets(self) -> tuple[str, ...]:
        """Data sets it needs."""
        return (self.dataset,)

    def at(self, schedule: str) -> Self:
        """The same detector, trained for a share of the iterations; smoke: a tiny one."""
        return replace(self, recipe=at_schedule(self.recipe, schedule))

    def fitted(self, backbone: Backbone) -> Self:
        """With the backbone's pixel scale; the image size is the detector's own."""
        mean, std = backbone.input.mean, backbone.input.std
        return replace(self, recipe=replace(self.recipe, pixel_mean=mean, pixel_std=std))

    def asked(self, options: TrainingOptions) -> Self:
        """As the user wants it run; what leaves the protocol changes its hash."""
        return replace(
            self,
            recipe=options.applied(self.recipe),
            learning_rates=options.searched_rates,
            engine_choice=options.engine,
        )

    def num_processes(self, options: TrainingOptions) -> int:
        """In which it is trained."""
        return options.num_processes(self.recipe.batch_size)

    def unfit(self, backbone: Backbone) -> str:
        """Why a backbone cannot carry a detector; empty if it can."""
        return unfit(backbone, "the stages' strides are not the detectors' 4 to 32")

    def prepare(self, backbone: Backbone, folders: Folders) -> Prepared[Portion]:
        """Open all annotations, put the weights in their place and prove it on a fixed image."""
        require_fit(backbone, self.unfit(backbone))
        process = this_process()
        norm = norm_for(self.recipe.synchronized_norm, process.device, process.num_processes)
        images = self.portion(folders, "trainval", "test")
        detector = self.initial(self.recipe, backbone, images.train, norm, seed=0)
        differences = prove(detector, backbone.state_dict, backbone.arch, self.recipe)
        say_proven(backbone, differences, norm)
        held_out = self.portion(folders, "train", "val") if self.learning_rates else None
        return Prepared(backbone, norm, differences, images, held_out)

    def portion(self, folders: Folders, train: str, test: str) -> Portion:
        """Two splits as they were checked, without the broken images that the user tolerates."""
        learned, tested = (
            folders.usable(self.dataset, split, open_scenes(self.dataset, folders.data, split))
            for split in (train, test)
        )
        return Portion(learned, usable_for_training(learned, self.recipe.finds), tested)

    def initial(
        self, recipe: Recipe, backbone: Backbone, scenes: Scenes, norm: Norm, *, seed: int
    ) -> Detector:
        """The detector before training; the global generator is kept."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            detector = build_detector(
                self.engine,
                recipe,
                arch=backbone.arch,
                num_classes=len(scenes.class_names),
                norm=norm,
            )
        detector.load_backbone(backbone.state_dict)
        return detector

    def run(self, prepared: Prepared[Portion], folders: Folders, seed: int) -> Detected:
        """Choose the rate if several are given, train on all images, look at the test images."""
        found = self.tried(prepared, folders, seed)
        rate = best(found, self.recipe.learning_rate)
        done = self.trained(prepared, prepared.images, folders, seed, rate, "all")
        return replace(done, details={**done.details, "held_out_AP": by_name(found)})

    def tried(self, prepared: Prepared[Portion], folders: Folders, seed: int) -> dict[float, float]:
        """AP on held-out training images by learning rate; empty where none are to be tried."""
        portion = prepared.held_out
        if portion is None:
            return {}

        def score(rate: float) -> float:
            done = self.trained(prepared, portion, folders, seed, rate, f"rate-{rate:g}")
            return done.precisions[done.first]["AP"] if this_process().speaks else math.nan

        return tried(self.learning_rates, score, "AP")

    def trained(
        self,
        prepared: Prepared[Portion],
        portion: Portion,
        folders: Folders,
        seed: int,
        rate: float,
        name: str,
    ) -> Detected:
        """Train on one part's images with a learning rate, detect with the last weights."""
        process = this_process()
        recipe = replace(self.recipe, learning_rate=rate)
        detector = self.initial(recipe, prepared.backbone, portion.train, prepared.norm, seed=seed)
        detector.network.to(process.device)
        images = portion.train.fingerprint
        same = identity(
            prepared, recipe, seed, code_version=CODE_VERSION, engine=self.engine, images=images
        )
        training = train(
            detector,
            portion.train,
            portion.usable,
            recipe,
            seed=seed,
            folder=folders.work / f"{name}-{same}",
            process=process,
        )
        found = detect(detector, portion.test, recipe, process)
        details = {
            **told(prepared, recipe, training),
            "num_train": len(portion.usable),
            "num_test": len(portion.test),
        }
        return Detected(found, portion.test, self.kinds, details)

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Of average precision, by COCO's names; none on VOC, whose metric is its own."""
        return COCO_KINDS[self.recipe.finds] if self.dataset.startswith("coco") else ()

    def metrics(self, detected: Detected) -> dict[str, float]:
        """Percent, of what the task is named after."""
        precisions = detected.precisions[detected.first]
        return {name: precisions[name] for name in TABLE_METRICS if name in precisions}

    def details(self, detected: Detected) -> dict[str, object]:
        """How it was trained, and every precision: of sizes, of classes, of boxes too."""
        return {**detected.details, "precisions": detected.precisions}
