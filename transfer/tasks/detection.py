"""Detection, instance segmentation and keypoints on COCO and VOC, fine-tuning all layers.

JCL Table 2 (Cai et al., NeurIPS 2020, arXiv:2009.14776), which LORAC's Table IV repeats, and CO2
Table 3 (Wei et al., ICLR 2021, arXiv:2010.02217).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np

from pretrain.running.console import print_line
from pretrain.running.processes import this_process
from transfer.datasets.folders import Folders
from transfer.datasets.scenes import Scenes, usable_for_training
from transfer.detection import recipe as recipes
from transfer.detection.engines import HOW_TO_INSTALL, EngineName, build_detector, engine_for
from transfer.detection.recipe import DetectorRecipe
from transfer.encoders.architectures import PLAIN, WIDE
from transfer.encoders.encoder import Encoder
from transfer.finetuning.options import EngineChoice, TrainingOptions
from transfer.outcomes import resampled
from transfer.tasks.recipe_training import RecipeTraining, fine_tuning_unsupported_reason
from transfer.tasks.task import TrainingData

if TYPE_CHECKING:
    from pathlib import Path

    from transfer.detection.coco_ap import Kind
    from transfer.detection.detector import Detector, Sample
    from transfer.detection.results import Detections
    from transfer.finetuning.norms import Norm
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

        The papers' tables show the first kind. The resampled metrics (B,) are of the first kind.
        """
        from transfer.detection.coco_ap import coco_ap
        from transfer.detection.voc_ap import resampled_voc_ap, voc_ap

        if self.kinds:
            return coco_ap(self.detections, self.scenes, self.kinds)
        resampled = resampled_voc_ap(self.detections, self.scenes)
        return {"bbox": voc_ap(self.detections, self.scenes)}, resampled


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

    @property
    def work(self) -> str:
        """Return the type of work, as named in `hours`, without the precision."""
        name = WORK[self.recipe.neck, self.recipe.finds]
        return f"{name}@4conv1fc" if self.recipe.box_head_convs else name

    @property
    def relative_size(self) -> float:
        """Return the image size relative to the one that `hours` assumes."""
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

    def unusable_reason(self, images: Scenes, *, is_test: bool) -> str:
        """Return why no object can be learned, or found in test images; empty if one can.

        VOC's difficult objects are learned, but do not count when objects are found.
        """
        learned = usable_for_training(images, self.recipe.finds)
        if len(learned) and (not is_test or images.objects_per_class().any()):
            return ""
        purpose = "that can be found" if is_test else "to train on"
        return f"no object {purpose}: {self.object_counts(images)}"

    def object_counts(self, images: Scenes) -> str:
        """Return how many objects there are, and which of them cannot be used."""
        in_split = np.isin(images.arrays.image_of_object, images.order)
        num_aside = (in_split & images.arrays.aside).sum()
        kind = "crowds" if images.aside_are_crowds else "difficult"
        text = f"{num_aside:,} of {in_split.sum():,} objects on {len(images):,} images are {kind}"
        if self.recipe.finds == "keypoints":
            text += ", the others have no labeled keypoint"
        return f"{text} ({images.annotations or images.source.folder})"

    def build(self, backbone: Encoder, num_classes: int, norm: Norm) -> Detector:
        """Return the detector with the backbone's weights; torch draws the other weights."""
        detector = build_detector(
            self.engine, self.recipe, arch=backbone.arch, num_classes=num_classes, norm=norm
        )
        detector.load_backbone(backbone.state_dict)
        return detector

    def samples(self, images: Scenes, seed: int) -> Samples[Sample]:
        """Return training samples of the images with usable objects."""
        from transfer.detection.samples import training_sample
        from transfer.finetuning.stream import single_samples

        usable = images.subset(usable_for_training(images, self.recipe.finds))
        is_landscape = usable.wide if self.recipe.group_by_aspect else None
        return single_samples(usable, training_sample, self.recipe, seed, is_landscape)

    def test(self, network: Any, data: TrainingData, folder: Path, folders: Folders) -> Detected:
        """Return the detections on the test images.

        The detectron2 engine also writes config and weights for detectron2.
        """
        from transfer.detection.results import detect

        scenes, process = data.test, this_process()
        if self.engine == "detectron2" and process.is_main:
            from transfer.detection.detectron2_engine import write_files

            write_files(network, self.dataset, folder / "detectron2")
            print_line("detectron2", f"config and weights  ->  {folder / 'detectron2'}")
        return Detected(detect(network, scenes, self.recipe, process), scenes, self.kinds)

    @property
    def kinds(self) -> tuple[Kind, ...]:
        """Return COCO's kinds of average precision; empty for VOC."""
        return COCO_KINDS[self.recipe.finds] if self.dataset.startswith("coco") else ()

    def metrics(self, detected: Detected) -> dict[str, float]:
        """Return metrics in percent, for the kind in the papers' tables."""
        precisions = next(iter(detected.scores[0].values()))
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


FOUR_CONVS = "jcl-2020-4conv1fc/1"
C4_VARIANTS = {
    "moco": recipes.VOC_C4_MOCO,
    "none": recipes.VOC_C4_NONE,
    "lr_mult": replace(recipes.VOC_C4, rpn_gradient="lr_mult"),
    "loss_weight": replace(recipes.VOC_C4, rpn_gradient="loss_weight"),
}
"""C4 recipes with other norm layers or gradient scaling than CO2's."""

# the recipes are in transfer/detection/recipe.py
TASKS = {
    "coco_det": Detection(dataset="coco17", protocol="jcl-2020/1", recipe=recipes.COCO_FPN),
    "coco_insseg": Detection(
        dataset="coco17", protocol="jcl-2020/1", recipe=recipes.COCO_FPN_MASKS
    ),
    "coco_keypoint": Detection(
        dataset="coco17_keypoints", protocol="jcl-2020/1", recipe=recipes.COCO_FPN_KEYPOINTS
    ),
    "voc0712_det_c4": Detection(dataset="voc0712", protocol="co2-2021/1", recipe=recipes.VOC_C4),
    "coco_det@4conv1fc": Detection(
        dataset="coco17", protocol=FOUR_CONVS, recipe=recipes.COCO_4CONV1FC, by_default=False
    ),
    "coco_insseg@4conv1fc": Detection(
        dataset="coco17", protocol=FOUR_CONVS, recipe=recipes.COCO_4CONV1FC_MASKS, by_default=False
    ),
    **{
        f"voc0712_det_c4@{name}": Detection(
            dataset="voc0712", protocol=f"co2-2021-{name}/1", recipe=recipe, by_default=False
        )
        for name, recipe in C4_VARIANTS.items()
    },
}
