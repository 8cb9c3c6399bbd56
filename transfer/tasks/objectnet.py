"""ObjectNet's thirteen classes of ImageNet-100, without training: LooC, arXiv:2008.05659, Table 3.

The ImageNet-100 classifier of the same backbone sees photographs from other viewpoints and answers
with any of its hundred classes.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Literal

from transfer.backbone import Backbone
from transfer.datasets.objectnet import BORDER_PX
from transfer.frozen.classifier import Heads, among, load_classifier, scores_of
from transfer.frozen.cost import probe_hours
from transfer.frozen.features import (
    EvalTransform,
    Features,
    Predictions,
    features_together,
    frozen_features,
    open_images,
)
from transfer.metrics import top1, topk
from transfer.running.folders import Folders
from transfer.tasks.task import TaskDefaults


@dataclass(frozen=True)
class Prepared:
    """Classifier and images."""

    head: Heads
    classes: tuple[str, ...]
    """Of the classifier."""
    test: Features
    names: tuple[str, ...]
    """Of the test labels."""


@dataclass(frozen=True, kw_only=True)
class ObjectNetEval(TaskDefaults):
    """LooC's test of a trained ImageNet-100 classifier on other viewpoints."""

    heading: ClassVar[str] = "Robustness"
    primary_metric: ClassVar[str] = "top1"

    dataset: str = "objectnet13"
    protocol: str = "looc-2020/1"
    classifier: str = "in100_linear@looc"
    """Key of the task that trains it."""
    classes_of: str = "in100"
    """The set it is trained on."""
    border_px: int = BORDER_PX
    """The red border, cut off."""
    crop_px: int = 224
    margin_px: int = 32
    """As in the linear probe."""
    engine: Literal["torch"] = "torch"

    @property
    def needs(self) -> str:
        """Return the key of the task whose trained classifier this one uses."""
        return self.classifier

    def datasets(self) -> tuple[str, ...]:
        """Data sets it needs, the classifier's among them."""
        return (self.dataset, self.classes_of)

    def at_schedule(self, schedule: str) -> "ObjectNetEval":
        """There is nothing to shorten but the classifier's training."""
        return self

    def for_backbone(self, backbone: Backbone) -> "ObjectNetEval":
        """With images of the size that the backbone was trained for."""
        return replace(self, crop_px=backbone.input.size_px)

    @property
    def transform(self) -> EvalTransform:
        """Of the test images."""
        centered = EvalTransform.center(self.crop_px, self.margin_px)
        return replace(centered, border_px=self.border_px)

    def extract_together(self, backbones: Sequence[Backbone], folders: Folders) -> bool:
        """Extract features of several backbones of one image size; decode every image once."""
        features_together(backbones, self.dataset, "test", self.transform, folders)
        return True

    def gpu_hours(self, backbone: Backbone) -> float:
        """Return the estimated hours on one GPU, on the published counts of images."""
        return probe_hours(backbone, self.dataset)

    def prepare(self, backbone: Backbone, folders: Folders) -> Prepared:
        """Find the classifier, extract features or find them cached."""
        head = load_classifier(folders.classifier) if folders.classifier else None
        if head is None:
            raise FileNotFoundError(
                f"no trained classifier in {folders.classifier}; run {self.classifier} first"
            )
        return Prepared(
            head,
            open_images(self.classes_of, "test", folders).class_names,
            frozen_features(backbone, self.dataset, "test", self.transform, folders),
            open_images(self.dataset, "test", folders).class_names,
        )

    def run(self, prepared: Prepared, folders: Folders, seed: int) -> Predictions:
        """Scores of all classes of the classifier."""
        scores = scores_of(prepared.head, prepared.test.features)
        return Predictions(scores, among(prepared.test.labels, prepared.names, prepared.classes))

    def metrics(self, predictions: Predictions) -> dict[str, float]:
        """Percent."""
        scores, labels = predictions.scores, predictions.labels
        return {"top1": top1(scores, labels), "top5": topk(scores, labels, k=5)}

    def details(self, predictions: Predictions) -> dict[str, object]:
        """How many images were scored."""
        return {"num_test": len(predictions.labels)}


TASKS = {"objectnet13_eval": ObjectNetEval()}
