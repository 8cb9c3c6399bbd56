"""Detection, instance segmentation and keypoints on COCO and VOC, fine-tuning the whole network.

JCL Table 2 (Cai et al., NeurIPS 2020, arXiv:2009.14776), which LORAC's Table IV repeats, and CO2
Table 3 (Wei et al., ICLR 2021, arXiv:2010.02217).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Self, cast

import numpy as np

from pretrain.running.console import print_line
from pretrain.running.processes import this_process
from transfer.datasets.catalog import open_scenes
from transfer.datasets.folders import Folders
from transfer.datasets.scenes import Scenes, usable_for_training
from transfer.detection.engines import HOW_TO_INSTALL, EngineName, build_detector, engine_for
from transfer.detection.recipe import (
    COCO_4CONV1FC,
    COCO_4CONV1FC_MASKS,
    COCO_FPN,
    COCO_FPN_KEYPOINTS,
    COCO_FPN_MASKS,
    VOC_C4,
    VOC_C4_MOCO,
    VOC_C4_NONE,
    DetectorRecipe,
)
from transfer.encoders.architectures import PLAIN, WIDE
from transfer.encoders.encoder import Encoder
from transfer.finetuning.options import EngineChoice, TrainingOptions
from transfer.outcomes import resampled
from transfer.tasks.recipe_training import Portion, RecipeTraining, why_not_whole

if TYPE_CHECKING:
    from pathlib import Path

    from transfer.detection.coco_ap import Kind
    from transfer.detection.detector import Detector, Sample
    from transfer.detection.detectron2_engine import Detectron2Detector
    from transfer.detection.results import Detections
    from transfer.finetuning.norms import Norm
    from transfer.finetuning.state import Training
    from transfer.finetuning.stream import Samples
    from transfer.galleries.tile import Tile
    from transfer.outcomes import Floats

COCO_KINDS: dict[str, tuple[Kind, ...]] = {
    "boxes": ("bbox",),
    "masks": ("segm", "bbox"),
    "keypoints": ("keypoints", "bbox"),
}
"""Kinds of COCO's average precision; the papers' tables show the first."""
TABLE_METRICS = ("AP", "AP50", "AP75", "AP_area", "AP50_area", "AP75_area")
"""Metrics of the tables; all others are in the record's details. On VOC, AP is that of 11 points,
AP_area that of all points."""
WORK = {
    ("c4", "boxes"): "voc0712_det_c4",
    ("fpn", "boxes"): "coco_det",
    ("fpn", "masks"): "coco_insseg",
    ("fpn", "keypoints"): "coco_keypoint",
}
"""Kind of work in `hours`, by neck and output."""


@dataclass(frozen=True, eq=False)
class Detected:
    """Detections on the test images, with details of the training."""

    found: list[Detections]
    scenes: Scenes
    kinds: tuple[Kind, ...]
    """Kinds of COCO's average precision; empty for VOC."""
    details: Mapping[str, object] = field(default_factory=dict)

    @cached_property
    def scores(self) -> tuple[Mapping[Kind, Mapping[str, float]], dict[str, Floats]]:
        """Return average precisions in percent, by kind, and those of resampled test sets.

        Resampled (B,) are the metrics of the first kind.
        """
        from transfer.detection.coco_ap import coco_ap
        from transfer.detection.voc_ap import resampled_voc_ap, voc_ap

        if self.kinds:
            return coco_ap(self.found, self.scenes, self.kinds)
        resampled = resampled_voc_ap(self.found, self.scenes)
        return {"bbox": voc_ap(self.found, self.scenes)}, resampled

    @property
    def first(self) -> Kind:
        """Return the kind that the papers' tables show."""
        return self.kinds[0] if self.kinds else "bbox"


@dataclass(frozen=True, kw_only=True)
class Detection(RecipeTraining[DetectorRecipe]):
    """A detector on the backbone, trained in all layers and tested with its last weights."""

    primary_metric: ClassVar[str] = "AP"
    supported_options: ClassVar[frozenset[str]] = RecipeTraining.supported_options | {"engine"}
    varied_image_sizes: ClassVar[bool] = True
    kind: ClassVar[str] = "detection"
    assumption: ClassVar[str] = (
        "on V100 by detectron2's model zoo (assumed for either engine, not measured)"
    )
    mean_of_three: ClassVar[str] = "voc0712_det_c4"

    engine_choice: EngineChoice = field(default="auto", metadata={"hashed": False})
    """Engine that the user chose. It is not part of the hash, since both engines compute the same
    detector; a note in the tables names it."""

    @property
    def engine(self) -> EngineName:
        """Return the engine that will run on this machine."""
        return engine_for(self.engine_choice)

    def with_options(self, options: TrainingOptions) -> Self:
        """Return the protocol with the user's options; a departure from it changes the hash."""
        return replace(super().with_options(options), engine_choice=options.engine)

    def unsupported_reason(self, backbone: Encoder) -> str:
        """Return why a backbone cannot carry a detector; empty if it can."""
        if backbone.arch in WIDE and self.engine == "detectron2":
            return (
                f"the detectron2 engine builds {', '.join(PLAIN)}, not {backbone.arch}: say "
                f"--engine torchvision, which builds it"
            )
        return why_not_whole(backbone, "the stages' strides are not the detectors' 4 to 32")

    def accepts_engine(self, engine: str) -> bool:
        """Return whether a record of this engine counts: any, unless the user chose one."""
        return self.engine_choice == "auto" or engine == self.engine

    @property
    def work(self) -> str:
        """Return its kind of work in `hours`, without the precision."""
        name = WORK[self.recipe.neck, self.recipe.finds]
        return f"{name}@4conv1fc" if self.recipe.box_head_convs else name

    @property
    def relative_size(self) -> float:
        """Return the side of its images relative to those of the kind of work."""
        return self.recipe.test_short_px / 800

    def notes(self) -> list[str]:
        """Return a note on the engine."""
        if self.engine == "detectron2":
            engine = "the detectron2 engine; --engine torchvision computes the same detector"
        elif self.engine_choice == "torchvision":
            engine = "the torchvision engine, as asked"
        else:
            engine = f"the torchvision engine, since detectron2 is not installed. {HOW_TO_INSTALL}"
        return [f"detection: {engine}"]

    def open(self, data: Path, split: str) -> Scenes:
        """Open a split of the data set."""
        return open_scenes(self.dataset, data, split)

    def why_not_learned(self, images: Scenes) -> str:
        """Return why the images have no object to train on, with counts; empty if they do."""
        counts = no_targets(images, self.recipe.finds, difficult_count=True)
        return counts and f"no object to train on: {counts}"

    def why_not_tested(self, images: Scenes) -> str:
        """Return why the images have no object that can be found; empty if they do."""
        counts = no_targets(images, self.recipe.finds, difficult_count=False)
        return counts and f"no object that can be found: {counts}"

    def build(self, backbone: Encoder, num_classes: int, norm: Norm, folders: Folders) -> Detector:
        """Return the detector with the backbone's weights; torch's generator draws the others."""
        detector = build_detector(
            self.engine, self.recipe, arch=backbone.arch, num_classes=num_classes, norm=norm
        )
        detector.load_backbone(backbone.state_dict)
        return detector

    def samples(self, images: Scenes, seed: int) -> Samples[Sample]:
        """Return the samples of the images from which the detector can learn."""
        from transfer.detection.train import training_samples

        usable = usable_for_training(images, self.recipe.finds)
        return training_samples(images, usable, self.recipe, seed)

    def training(self, network: Detector, recipe: DetectorRecipe, folder: Path) -> Training:
        """Return the training of a detector."""
        from transfer.detection.train import training

        return training(network, recipe, folder)

    def test(self, network: Detector, portion: Portion, folder: Path, folders: Folders) -> Detected:
        """Return the detections on the test images; detectron2's detector leaves its files."""
        from transfer.detection.train import detect

        scenes, process = portion.test, this_process()
        if self.engine == "detectron2" and process.is_main:
            from transfer.detection.detectron2_engine import write_files

            write_files(cast("Detectron2Detector", network), self.dataset, folder / "detectron2")
            print_line("detectron2", f"config and weights  ->  {folder / 'detectron2'}")
        return Detected(detect(network, scenes, self.recipe, process), scenes, self.kinds)

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Return COCO's kinds of average precision; empty on VOC, which has its own."""
        return COCO_KINDS[self.recipe.finds] if self.dataset.startswith("coco") else ()

    def metrics(self, detected: Detected) -> dict[str, float]:
        """Return metrics in percent, for the kind that the task is named after."""
        precisions = detected.scores[0][detected.first]
        return {name: precisions[name] for name in TABLE_METRICS if name in precisions}

    def details(self, detected: Detected) -> dict[str, object]:
        """Return details of the training and all precisions: of sizes, classes and also boxes."""
        precisions, resampled_metrics = detected.scores
        kept = resampled(resampled_metrics, len(detected.scenes))
        return {**detected.details, "precisions": precisions, **kept}

    def gallery(self, detected: Detected, folders: Folders) -> list[Tile]:
        """Return pictures of detections beside the truth."""
        from transfer.galleries.objects import objects

        return objects(detected.scenes, detected.found)


def no_targets(scenes: Scenes, finds: str, *, difficult_count: bool) -> str:
    """Return the counts of objects of a split if a detector can use none; else an empty text.

    Crowds cannot be used, nor objects without a labeled keypoint where keypoints are learned.
    difficult_count: VOC's difficult objects are used, as in training.
    """
    arrays = scenes.arrays
    here = np.isin(arrays.image_of_object, scenes.order)
    aside = here & arrays.aside & (scenes.aside_are_crowds or not difficult_count)
    unlabeled = np.zeros_like(here)
    if finds == "keypoints" and len(arrays.keypoints):
        unlabeled = here & ~aside & ~(arrays.keypoints[..., 2] > 0).any(axis=1)
    if (here & ~aside & ~unlabeled).any():
        return ""
    images = f"{len(scenes):,} images"
    if scenes.annotations is not None:
        images += f" of {scenes.annotations}"
    if not here.any():
        return f"{images} have none but broken ones and boxes without area"
    causes = []
    if aside.any():
        causes.append(f"{aside.sum():,} are {'crowds' if scenes.aside_are_crowds else 'difficult'}")
    if unlabeled.any():
        causes.append(f"{unlabeled.sum():,} have no labeled keypoint")
    return f"{images} have {here.sum():,} objects: {' and '.join(causes)}"


FOUR_CONVS = "jcl-2020-4conv1fc/1"
C4_READINGS = {
    "moco": VOC_C4_MOCO,
    "none": VOC_C4_NONE,
    "lr_mult": replace(VOC_C4, rpn_gradient="lr_mult"),
    "loss_weight": replace(VOC_C4, rpn_gradient="loss_weight"),
}
"""C4 recipes without CO2's norm layers, and with other readings of its divided gradients."""

# numbers of the recipes, and what those of masks and keypoints change: transfer/detection/recipe.py
TASKS = {
    "coco_det": Detection(dataset="coco17", protocol="jcl-2020/1", recipe=COCO_FPN),
    "coco_insseg": Detection(dataset="coco17", protocol="jcl-2020/1", recipe=COCO_FPN_MASKS),
    "coco_keypoint": Detection(
        dataset="coco17_keypoints", protocol="jcl-2020/1", recipe=COCO_FPN_KEYPOINTS
    ),
    "voc0712_det_c4": Detection(dataset="voc0712", protocol="co2-2021/1", recipe=VOC_C4),
    "coco_det@4conv1fc": Detection(
        dataset="coco17", protocol=FOUR_CONVS, recipe=COCO_4CONV1FC, by_default=False
    ),
    "coco_insseg@4conv1fc": Detection(
        dataset="coco17", protocol=FOUR_CONVS, recipe=COCO_4CONV1FC_MASKS, by_default=False
    ),
    **{
        f"voc0712_det_c4@{name}": Detection(
            dataset="voc0712", protocol=f"co2-2021-{name}/1", recipe=reading, by_default=False
        )
        for name, reading in C4_READINGS.items()
    },
}
