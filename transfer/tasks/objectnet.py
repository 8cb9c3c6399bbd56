"""ObjectNet's thirteen classes of ImageNet-100, without training: LooC, arXiv:2008.05659, Table 3.

The ImageNet-100 classifier of the same backbone is tested on photographs from other viewpoints. It
may answer with any of its hundred classes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, ClassVar, Literal

from transfer.backbone import Backbone
from transfer.datasets.imagenet.objectnet import BORDER_PX, with_words
from transfer.frozen.features import Predictions
from transfer.frozen.pass_hours import probe_hours
from transfer.frozen.transforms import EvalTransform
from transfer.running.folders import Folders
from transfer.running.measured_rates import ASSUMED, Rates
from transfer.tasks.task import TaskDefaults

if TYPE_CHECKING:
    from transfer.frozen.classifier_evaluation import ClassifierTest
    from transfer.galleries.tile import Tile


@dataclass(frozen=True, kw_only=True)
class ObjectNetEval(TaskDefaults):
    """LooC's test of a trained ImageNet-100 classifier on other viewpoints."""

    heading: ClassVar[str] = "Robustness"
    primary_metric: ClassVar[str] = "top1"

    dataset: str = "objectnet13"
    protocol: str = "looc-2020/1"
    classifier: str = "in100_linear@looc"
    """Key of the task that trains the classifier."""
    classes_of: str = "in100"
    """Key of the data set that the classifier is trained on."""
    border_px: int = BORDER_PX
    """Width of the red border, which is cut off."""
    crop_px: int = 224
    margin_px: int = 32
    """Margin around the crop, as in the linear probe."""
    engine: Literal["torch"] = "torch"

    @property
    def needs(self) -> str:
        """Return the key of the task whose trained classifier this one uses."""
        return self.classifier

    def datasets(self) -> tuple[str, ...]:
        """Return the keys of the data sets it reads, the classifier's included."""
        return (self.dataset, self.classes_of)

    def at_schedule(self, schedule: str) -> ObjectNetEval:
        """Return the same protocol: only the classifier's training, another task, has a length."""
        return self

    def for_backbone(self, backbone: Backbone) -> ObjectNetEval:
        """Return the protocol with the backbone's image size."""
        return replace(self, crop_px=backbone.input.size_px)

    @property
    def transform(self) -> EvalTransform:
        """Return the transform of the test images."""
        centered = EvalTransform.center(self.crop_px, self.margin_px)
        return replace(centered, border_px=self.border_px)

    def extract_together(self, backbones: Sequence[Backbone], folders: Folders) -> bool:
        """Extract features of several backbones of one image size; decode every image once."""
        from transfer.frozen.feature_cache import features_of_backbones

        features_of_backbones(backbones, self.dataset, "test", self.transform, folders)
        return True

    def gpu_hours(self, backbone: Backbone, rates: Rates = ASSUMED) -> float:
        """Return the estimated hours on one GPU, on the published counts of images."""
        return probe_hours(backbone, self.dataset, rates=rates)

    def prepare(self, backbone: Backbone, folders: Folders) -> ClassifierTest:
        """Return the classifier with the test features, extracted or from the cache.

        FileNotFoundError if the classifier is not trained.
        """
        from transfer.frozen.classifier_evaluation import open_classifier_test

        return open_classifier_test(
            backbone,
            self.dataset,
            self.transform,
            folders,
            classifier=self.classifier,
            classes_of=self.classes_of,
        )

    def run(self, prepared: ClassifierTest, folders: Folders, seed: int) -> Predictions:
        """Return the scores of all classes of the classifier, and numbers by class."""
        from transfer.frozen.class_results import class_results

        scores, labels = prepared.scores(), prepared.labels()
        return Predictions(
            scores, labels, class_results(scores, labels, with_words(prepared.classes))
        )

    def metrics(self, predictions: Predictions) -> dict[str, float]:
        """Return top-1 and top-5 in percent."""
        from transfer.metrics import top1, topk

        scores, labels = predictions.scores, predictions.labels
        return {"top1": top1(scores, labels), "top5": topk(scores, labels, k=5)}

    def details(self, predictions: Predictions) -> dict[str, object]:
        """Return the number of test images, accuracy by class and the most confused pairs."""
        return {**predictions.details, "num_test": len(predictions.labels)}

    def gallery(self, predictions: Predictions, folders: Folders) -> list[Tile]:
        """Return pictures of the test images about which the classifier is most wrong."""
        from transfer.frozen.feature_cache import open_images
        from transfer.galleries.mistakes import mistakes

        images = open_images(self.dataset, "test", folders)
        classes = with_words(open_images(self.classes_of, "test", folders).class_names)
        return mistakes(images, predictions.scores, predictions.labels, classes)


TASKS = {"objectnet13_eval": ObjectNetEval()}
