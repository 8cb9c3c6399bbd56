"""`Task`: the base class of tasks, with everything the suite uses.

A task is a frozen dataclass. No code outside of a task's file tests for its class.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

import numpy as np

from pretrain.running.errors import SuiteError
from transfer.datasets.catalog import DATASETS, expected_sizes
from transfer.datasets.expected import DataError
from transfer.datasets.folders import Folders
from transfer.encoders.encoder import Encoder
from transfer.finetuning.options import TrainingOptions
from transfer.finetuning.schedule import TrainingSchedule
from transfer.frozen.feature_cache import Features, TrainAndTest, features_of_backbones, open_images
from transfer.frozen.transforms import EvalTransform
from transfer.galleries.mistakes import mistakes
from transfer.metrics import top1, topk

if TYPE_CHECKING:
    from transfer.datasets.images import Images
    from transfer.frozen.linear_heads import Pass
    from transfer.galleries.tile import Tile


FROZEN = frozenset({"features_in", "keep_crops"})
"""Options of tasks on frozen features."""
CROPS = FROZEN | {"image_memory_gb"}
"""Options of tasks that also train on random crops."""


@dataclass(frozen=True, kw_only=True)
class Task(ABC):
    """Base class of tasks; a subclass adds the numbers of its protocol.

    The defaults suit a task that classifies images on a frozen backbone in one process.
    """

    heading: ClassVar[str]
    """Section of the overview that lists the task."""
    trains_backbone: ClassVar[bool] = False
    """True if the backbone's weights change."""
    seeded: ClassVar[bool] = True
    """False if the seed changes nothing, as in kNN classification."""
    kind: ClassVar[str] = ""
    """Kind of full-network training, as a plan names it."""
    assumption: ClassVar[str] = ""
    """Assumed speed of such a training, as a plan states it."""
    mean_of_three: ClassVar[str] = ""
    """Key of the task with published means of three runs."""
    varied_image_sizes: ClassVar[bool] = False
    """True if training images have many sizes."""
    supported_options: ClassVar[frozenset[str]] = FROZEN
    """Options that change the task or how it runs."""

    dataset: str
    """Key of the dataset."""
    protocol: str
    """Name and version of the protocol, such as "lorac-2021/1"."""
    by_default: bool = field(default=True, metadata={"hashed": False, "stored": False})
    """True if the task runs when no task is named."""

    @property
    @abstractmethod
    def engine(self) -> str:
        """Return the library or solver that computes the result."""

    @property
    def primary_metric(self) -> str:
        """Return the metric to show if only one is shown."""
        return "top1"

    @property
    def classifier_task(self) -> str:
        """Return the key of the task that trains the classifier.

        Empty if the task uses none.
        """
        return ""

    @property
    def distributed_training(self) -> TrainingSchedule | None:
        """Return the schedule of a training on several GPUs, if any."""
        return None

    @property
    def shared_pass(self) -> Hashable | None:
        """Return a key; probes with equal keys share one pass over crops.

        None if the task trains no such probe. Probes of several backbones also share it.
        """
        return None

    def datasets(self) -> tuple[str, ...]:
        """Return the keys of the datasets that the task reads."""
        return (self.dataset,)

    def at_schedule(self, schedule: str) -> Self:
        """Return the protocol, shortened to a schedule if it trains anything."""
        return self

    @abstractmethod
    def for_backbone(self, backbone: Encoder) -> Self:
        """Return the protocol with the backbone's image size and pixel scale."""

    def with_options(self, options: TrainingOptions) -> Self:
        """Return the protocol with the user's options applied."""
        return self

    def with_data(self, data: Path) -> Self:
        """Return the protocol that the datasets in a folder allow."""
        return self

    def num_processes(self, options: TrainingOptions) -> int:
        """Return the number of processes."""
        return 1

    def unsupported_reason(self, backbone: Encoder) -> str:
        """Return why a backbone is not supported; empty if it is."""
        return ""

    def too_few(self, num_images: int, num_classes: int) -> str:
        """Return why there are too few training images; empty if enough."""
        return ""

    def too_few_images(self, data: Path) -> str:
        """Return why a data folder has too few images; empty if enough or unknown."""
        sizes = expected_sizes(self.dataset, data)
        num_images = sizes.counts.get("trainval", 0)
        return self.too_few(num_images, sizes.classes) if num_images else ""

    def too_few_labels(self, images: Mapping[str, Images]) -> str:
        """Return why the extracted splits have too few labels; empty if enough."""
        train = images.get("trainval")
        return self.too_few(len(train), len(train.class_names)) if train is not None else ""

    def units(self) -> dict[str, float]:
        """Return the number of images by type of work, for `hours`.

        Computed from the published sizes of the datasets.
        """
        counts = DATASETS[self.dataset].counts
        return {"forward": counts.get("trainval", 0) + counts.get("test", 0)}

    def memory_gb(self, num_processes: int) -> float:
        """Return a lower bound in GB on the memory of one step.

        It holds for training a ResNet-50.
        """
        return 0.0

    def notes(self) -> list[str]:
        """Return notes that a plan prints if the task will run."""
        return []

    def extracted(self) -> list[tuple[str, EvalTransform]]:
        """Return the splits to extract frozen features from, each with its transform."""
        return []

    def extracted_images(self, folders: Folders) -> dict[str, Images]:
        """Return the splits to extract features from.

        Raises DataError if they have too few labels for the task.
        """
        splits = dict.fromkeys(split for split, _ in self.extracted())
        opened = {split: open_images(self.dataset, split, folders) for split in splits}
        if reason := self.too_few_labels(opened):
            raise DataError(reason)
        return opened

    def features(self, backbone: Encoder, folders: Folders) -> list[Features]:
        """Return the frozen features of `extracted`, computed or from the cache.

        Raises DataError if the images have too few labels for the task, and NotFiniteError if a
        feature is infinite or not a number.
        """
        from transfer.frozen.finite import require_finite

        extracted, opened = [], self.extracted_images(folders)
        for split, transform in self.extracted():
            (features,) = features_of_backbones([backbone], self.dataset, split, transform, folders)
            origin = f"({self.dataset}, {split}) by {backbone.name}"
            require_finite(features.features, opened[split].name, origin)
            extracted.append(features)
        return extracted

    @abstractmethod
    def prepare(self, backbone: Encoder, folders: Folders) -> Any:
        """Read every file that the run needs; return the input of `run`."""

    def passes(self, prepared: Any, folders: Folders, seed: int) -> Iterator[Pass]:
        """Yield the trainings of `run` on random crops; each must end before the next is made."""
        return iter(())

    @abstractmethod
    def run(self, prepared: Any, folders: Folders, seed: int) -> Any:
        """Return predictions for the test split; resume after an interruption."""

    def metrics(self, predictions: Any) -> dict[str, float]:
        """Return top-1 and top-5 accuracy in percent."""
        scores, labels = predictions.scores, predictions.labels
        metrics = {"top1": top1(scores, labels)}
        return metrics | ({"top5": topk(scores, labels, k=5)} if scores.shape[1] >= 5 else {})

    def details(self, predictions: Any) -> dict[str, object]:
        """Return further results for the record."""
        return {**predictions.details, "num_test": len(predictions.labels)}

    def gallery(self, predictions: Any, folders: Folders) -> Sequence[Tile]:
        """Return pictures of a few predictions, such as the most confident mistakes."""
        images = open_images(self.dataset, "test", folders)
        return mistakes(images, predictions.scores, predictions.labels)


@dataclass(frozen=True, kw_only=True)
class FrozenTask(Task):
    """Base class of tasks on features of a frozen backbone."""

    crop_px: int = 224
    engine: Literal["torch"] = "torch"

    def for_backbone(self, backbone: Encoder) -> Self:
        """Return the protocol with crops of the backbone's image size."""
        return replace(self, crop_px=backbone.input.size_px)


@dataclass(frozen=True, kw_only=True)
class CenterCrops(FrozenTask):
    """Base class of tasks on features of center crops."""

    margin_px: int = 32
    """Short side minus crop size, for crops of 224 px.

    It is scaled in proportion for other crops; 0 uses the whole image (CIFAR)."""

    @property
    def transform(self) -> EvalTransform:
        """Return the transform of the test images."""
        return EvalTransform.center(self.crop_px, self.margin_px)

    def extracted(self) -> list[tuple[str, EvalTransform]]:
        """Return the training and test splits, in center crops."""
        return [("trainval", self.transform), ("test", self.transform)]

    def prepare(self, backbone: Encoder, folders: Folders) -> Any:
        """Return the features of trainval and test, computed or from the cache."""
        train, test = self.features(backbone, folders)
        names = open_images(self.dataset, "test", folders).class_names
        return TrainAndTest(train, test, occurring_classes(names, train.labels, test.labels))


def occurring_classes(names: tuple[str, ...], *labels: Any) -> tuple[str, ...]:
    """Return the class names up to the last class in the labels."""
    return names[: 1 + max(int(array.max()) for array in labels)]


def too_few_of_a_class(
    split: str, images: Images, names: Sequence[str], minimum: int, purpose: str
) -> str:
    """Return an error message if a class has too few images; empty if all have enough.

    It names the class with the fewest images.

    split: dataset and split. purpose: clause that says why the images are needed.
    """
    counts = np.bincount(images.label_array, minlength=len(names))[: len(names)]
    if counts.min() >= minimum:
        return ""
    name = names[int(counts.argmin())]
    return (
        f"{split}: class {name!r} has {counts.min()} of the {minimum} images that it needs: "
        f"{purpose}. Use the complete dataset"
    )


def too_few_neighbors(
    num_neighbors: int, num_images: int, bank: str, *, has_smoke: bool = True
) -> str:
    """Return an error message if a bank has fewer images than neighbors; otherwise empty.

    has_smoke: whether the smoke schedule has fewer neighbors.
    """
    if num_images >= num_neighbors:
        return ""
    advice = ", or --schedule smoke for fewer neighbors" if has_smoke else ""
    return (
        f"{num_neighbors} neighbors are needed, but {bank} has {num_images} training images. Use "
        f"the complete dataset{advice}"
    )


@dataclass(frozen=True, eq=False)
class TrainingData:
    """The input of a run that trains on images."""

    backbone: Encoder
    train: Any
    """Training images."""
    test: Any
    """Test images, or their features."""
    held_out: TrainingData | None = None
    """Parts of the training images to compare learning rates on, if there are several."""


class TaskError(SuiteError, ValueError):
    """The task does not exist, or does not support the encoder."""


@dataclass(frozen=True)
class NamedTask:
    """A task of the suite, or an ablation of it."""

    key: str
    task: Task
    variant: str = ""
    """Name of the ablation; empty for the task of the suite."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Fields that the ablation changes, with their new values."""

    def ablation(self, name: str, **changes: Any) -> NamedTask:
        """Return the task with changed fields, under another protocol name and hash.

        name: suffix of the protocol's name. Raises TaskError for a field that the protocol lacks,
        or that the backbone's input sets.
        """
        names = {spec.name for spec in fields(self.task) if spec.metadata.get("hashed", True)}
        names -= {"protocol", "crop_px", "resize_px", "std"}
        if unknown := sorted(set(changes) - names):
            raise TaskError(
                f"{self.key} has no {', '.join(unknown)}; its numbers are "
                f"{', '.join(sorted(names))}"
            )
        protocol = f"{self.task.protocol}+{name}"
        task = replace(self.task, protocol=protocol, **changes)
        variant = "+".join(filter(None, [self.variant, name]))
        return NamedTask(self.key, task, variant, {**self.changes, **changes})
