"""The test of a trained classifier on another data set, without further training."""

from dataclasses import dataclass

from torch import Tensor

from transfer.backbone import Backbone
from transfer.frozen.classifier import Heads, classifier_scores, labels_among, load_classifier
from transfer.frozen.feature_cache import frozen_features, open_images
from transfer.frozen.features import Features
from transfer.frozen.transforms import EvalTransform
from transfer.running.folders import Folders


@dataclass(frozen=True)
class ClassifierTest:
    """A trained classifier and the test images of another data set."""

    head: Heads
    classes: tuple[str, ...]
    """Class names of the classifier."""
    test: Features
    names: tuple[str, ...]
    """Class names of the test labels."""
    files: tuple[str, ...]
    """File names of the test images."""

    def scores(self) -> Tensor:
        """Return scores (n, L) for all L classes of the classifier."""
        return classifier_scores(self.head, self.test.features)

    def labels(self) -> Tensor:
        """Return the labels (n,) as indices into the classifier's classes."""
        return labels_among(self.test.labels, self.names, self.classes)


def open_classifier_test(
    backbone: Backbone,
    dataset: str,
    transform: EvalTransform,
    folders: Folders,
    *,
    classifier: str,
    classes_of: str,
) -> ClassifierTest:
    """Load the classifier, and return it with the test features, extracted or from the cache.

    classifier: key of the task that trains it, for messages; classes_of: key of the data set that
    it is trained on. FileNotFoundError if it is not trained.
    """
    head = load_classifier(folders.classifier) if folders.classifier else None
    if head is None:
        raise FileNotFoundError(
            f"no trained classifier in {folders.classifier}; run {classifier} first"
        )
    images = open_images(dataset, "test", folders)
    return ClassifierTest(
        head,
        open_images(classes_of, "test", folders).class_names,
        frozen_features(backbone, dataset, "test", transform, folders),
        images.class_names,
        tuple(images.name(i) for i in range(len(images))),
    )
