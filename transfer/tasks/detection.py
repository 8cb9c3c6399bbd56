"""Detection, instance segmentation and keypoints on COCO and VOC, fine-tuning all layers.

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
from transfer.tasks.recipe_training import Portion, RecipeTraining, fine_tuning_unsupported_reason

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
"""Metrics of the tables; the record's details have all others.

On VOC, AP is the 11-point metric and AP_area the area under the curve."""
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

    detections: list[Detections]
    scenes: Scenes
    kinds: tuple[Kind, ...]
    """Kinds of COCO's average precision; empty for VOC."""
    details: Mapping[str, object] = field(default_factory=dict)

    @cached_property
    def scores(self) -> tuple[Mapping[Kind, Mapping[str, float]], dict[str, Floats]]:
        """Return average precisions in percent, by kind and on resampled test sets.

        The resampled metrics (B,) are of the first kind.
        """
        from transfer.detection.coco_ap import coco_ap
        from transfer.detection.voc_ap import resampled_voc_ap, voc_ap

        if self.kinds:
            return coco_ap(self.detections, self.scenes, self.kinds)
        resampled = resampled_voc_ap(self.detections, self.scenes)
        return {"bbox": voc_ap(self.detections, self.scenes)}, resampled

    @property
    def first(self) -> Kind:
        """Return the kind of average precision in the papers' tables."""
        return self.kinds[0] if self.kinds else "bbox"


@dataclass(frozen=True, kw_only=True)
class Detection(RecipeTraining[DetectorRecipe]):
    """A detector on the backbone; all layers are trained."""

    primary_metric: ClassVar[str] = "AP"
    supported_options: ClassVar[frozenset[str]] = RecipeTraining.supported_options | {"engine"}
    varied_image_sizes: ClassVar[bool] = True
    kind: ClassVar[str] = "detection"
    assumption: ClassVar[str] = (
        "on V100 by detectron2's model zoo (assumed for either engine, not measured)"
    )
    mean_of_three: ClassVar[str] = "voc0712_det_c4"

    engine_choice: EngineChoice = field(default="auto", metadata={"hashed": False})
    """Engine that the user chose.

    It is not part of the hash, since both engines compute the same detector. A note in the tables
    names it."""

    @property
    def engine(self) -> EngineName:
        """Return the engine that runs on this machine."""
        return engine_for(self.engine_choice)

    def with_options(self, options: TrainingOptions) -> Self:
        """Return the protocol with the user's options; deviations change the hash."""
        return replace(super().with_options(options), engine_choice=options.engine)

    def unsupported_reason(self, backbone: Encoder) -> str:
        """Return why detectors do not support a backbone; empty if they do."""
        if backbone.arch in WIDE and self.engine == "detectron2":
            return (
                f"the detectron2 engine supports {', '.join(PLAIN)}, not {backbone.arch}. Pass "
                f"--engine torchvision"
            )
        return fine_tuning_unsupported_reason(
            backbone, "the stages' strides are not the detectors' 4 to 32"
        )

    def accepts_engine(self, engine: str) -> bool:
        """Return whether a record of this engine counts as finished.

        Any engine counts, unless the user chose one.
        """
        return self.engine_choice == "auto" or engine == self.engine

    @property
    def work(self) -> str:
        """Return the kind of work in `hours`, without the precision."""
        name = WORK[self.recipe.neck, self.recipe.finds]
        return f"{name}@4conv1fc" if self.recipe.box_head_convs else name

    @property
    def relative_size(self) -> float:
        """Return the image size relative to the one of `work`."""
        return self.recipe.test_short_px / 800

    def notes(self) -> list[str]:
        """Return a note on the engine."""
        if self.engine == "detectron2":
            engine = "the detectron2 engine; --engine torchvision computes the same detector"
        elif self.engine_choice == "torchvision":
            engine = "the torchvision engine, as requested"
        else:
            engine = f"the torchvision engine, since detectron2 is not installed. {HOW_TO_INSTALL}"
        return [f"detection: {engine}"]

    def open(self, data: Path, split: str) -> Scenes:
        """Open a split of the dataset."""
        return open_scenes(self.dataset, data, split)

    def untrainable_reason(self, images: Scenes) -> str:
        """Return why no object can be trained on; empty if one can."""
        counts = no_targets(images, self.recipe.finds, difficult_count=True)
        return counts and f"no object to train on: {counts}"

    def untestable_reason(self, images: Scenes) -> str:
        """Return why no object can be detected; empty if one can."""
        counts = no_targets(images, self.recipe.finds, difficult_count=False)
        return counts and f"no object that can be found: {counts}"

    def build(self, backbone: Encoder, num_classes: int, norm: Norm, folders: Folders) -> Detector:
        """Return the detector with the backbone's weights; torch draws the other weights."""
        detector = build_detector(
            self.engine, self.recipe, arch=backbone.arch, num_classes=num_classes, norm=norm
        )
        detector.load_backbone(backbone.state_dict)
        return detector

    def samples(self, images: Scenes, seed: int) -> Samples[Sample]:
        """Return training samples of the images with usable objects."""
        from transfer.detection.train import training_samples

        usable = usable_for_training(images, self.recipe.finds)
        return training_samples(images, usable, self.recipe, seed)

    def training(self, network: Detector, recipe: DetectorRecipe, folder: Path) -> Training:
        """Return the training of a detector."""
        from transfer.detection.train import training

        return training(network, recipe, folder)

    def test(self, network: Detector, portion: Portion, folder: Path, folders: Folders) -> Detected:
        """Return the detections on the test images.

        The detectron2 engine also writes config and weights for detectron2.
        """
        from transfer.detection.train import detect

        scenes, process = portion.test, this_process()
        if self.engine == "detectron2" and process.is_main:
            from transfer.detection.detectron2_engine import write_files

            write_files(cast("Detectron2Detector", network), self.dataset, folder / "detectron2")
            print_line("detectron2", f"config and weights  ->  {folder / 'detectron2'}")
        return Detected(detect(network, scenes, self.recipe, process), scenes, self.kinds)

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Return COCO's kinds of average precision; empty for VOC."""
        return COCO_KINDS[self.recipe.finds] if self.dataset.startswith("coco") else ()

    def metrics(self, detected: Detected) -> dict[str, float]:
        """Return metrics in percent, for the kind in the papers' tables."""
        precisions = detected.scores[0][detected.first]
        return {name: precisions[name] for name in TABLE_METRICS if name in precisions}

    def details(self, detected: Detected) -> dict[str, object]:
        """Return details of the training and all average precisions.

        They include sizes, classes and, for masks and keypoints, boxes.
        """
        precisions, resampled_metrics = detected.scores
        resampled_details = resampled(resampled_metrics, len(detected.scenes))
        return {**detected.details, "precisions": precisions, **resampled_details}

    def gallery(self, detected: Detected, folders: Folders) -> list[Tile]:
        """Return pictures of detections next to the ground truth."""
        from transfer.galleries.objects import objects

        return objects(detected.scenes, detected.detections)


def no_targets(scenes: Scenes, finds: str, *, difficult_count: bool) -> str:
    """Return object counts if no object is usable; otherwise an empty text.

    Crowds cannot be used, nor, for keypoint detectors, objects without a labeled keypoint.
    difficult_count: VOC's difficult objects are used, as in training.
    """
    arrays = scenes.arrays
    in_split = np.isin(arrays.image_of_object, scenes.order)
    ignored = in_split & arrays.aside & (scenes.aside_are_crowds or not difficult_count)
    unlabeled = np.zeros_like(in_split)
    if finds == "keypoints" and len(arrays.keypoints):
        unlabeled = in_split & ~ignored & ~(arrays.keypoints[..., 2] > 0).any(axis=1)
    if (in_split & ~ignored & ~unlabeled).any():
        return ""
    images = f"{len(scenes):,} images"
    if scenes.annotations is not None:
        images += f" of {scenes.annotations}"
    if not in_split.any():
        return f"{images} have none but broken ones and boxes without area"
    causes = []
    if ignored.any():
        causes.append(
            f"{ignored.sum():,} are {'crowds' if scenes.aside_are_crowds else 'difficult'}"
        )
    if unlabeled.any():
        causes.append(f"{unlabeled.sum():,} have no labeled keypoint")
    return f"{images} have {in_split.sum():,} objects: {' and '.join(causes)}"


FOUR_CONVS = "jcl-2020-4conv1fc/1"
C4_VARIANTS = {
    "moco": VOC_C4_MOCO,
    "none": VOC_C4_NONE,
    "lr_mult": replace(VOC_C4, rpn_gradient="lr_mult"),
    "loss_weight": replace(VOC_C4, rpn_gradient="loss_weight"),
}
"""C4 recipes with other norm layers or gradient scaling than CO2's."""

# the recipes are in transfer/detection/recipe.py
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
            dataset="voc0712", protocol=f"co2-2021-{name}/1", recipe=recipe, by_default=False
        )
        for name, recipe in C4_VARIANTS.items()
    },
}
