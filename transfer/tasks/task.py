"""A task: a frozen dataclass; `Task` lists everything that the rest of the suite uses of it.

No code outside of a task's file tests for its class.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping, Sequence
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
    from transfer.galleries.tile import Tile


FROZEN = frozenset({"features_in", "keep_crops"})
"""Options that tasks on frozen features use."""
CROPS = FROZEN | {"image_memory_gb"}
"""Options that tasks use which also train on random crops."""


@dataclass(frozen=True, kw_only=True)
class Task(ABC):
    """A task, with the answers of one that classifies images by a frozen backbone, in one process.

    The fields of the subclasses are the numbers of the protocol.
    """

    heading: ClassVar[str]
    """Part of the overview that shows the task."""
    trains_backbone: ClassVar[bool] = False
    """True if the backbone's weights change."""
    seeded: ClassVar[bool] = True
    """False if the seed changes nothing, as in kNN classification."""
    kind: ClassVar[str] = ""
    """Name in a plan of the kind of training of the whole network."""
    assumption: ClassVar[str] = ""
    """Clause of a plan on the assumed speed of such a training."""
    mean_of_three: ClassVar[str] = ""
    """Key of the task of this class whose published number is a mean of three runs."""
    varied_image_sizes: ClassVar[bool] = False
    """True if a training sees images of many sizes."""
    supported_options: ClassVar[frozenset[str]] = FROZEN
    """Names of the options that change the task or how it runs."""

    dataset: str
    """Key of the data set."""
    protocol: str
    """Name and version of the protocol, such as "lorac-2021/1"."""
    by_default: bool = field(default=True, metadata={"hashed": False, "stored": False})
    """Membership in the tasks that run when none is named."""

    @property
    @abstractmethod
    def engine(self) -> str:
        """Return the name of the library or solver that computes."""

    @property
    def primary_metric(self) -> str:
        """Return the metric that stands for the task where there is room for one."""
        return "top1"

    @property
    def classifier_task(self) -> str:
        """Return the key of the task whose trained classifier this one uses; empty for none."""
        return ""

    @property
    def distributed_training(self) -> TrainingSchedule | None:
        """Return the schedule of a training that divides its batch among GPUs, if it has one."""
        return None

    @property
    def shared_pass(self) -> Hashable | None:
        """Return what tasks have in common whose probes read one stream of crops; None for none."""
        return None

    def datasets(self) -> tuple[str, ...]:
        """Return the keys of the data sets it reads."""
        return (self.dataset,)

    def at_schedule(self, schedule: str) -> Self:
        """Return the protocol at the length of a schedule: itself where nothing is trained."""
        return self

    @abstractmethod
    def for_backbone(self, backbone: Encoder) -> Self:
        """Return the protocol with the backbone's image size and pixel scale."""

    def with_options(self, options: TrainingOptions) -> Self:
        """Return the protocol as the user's options change it."""
        return self

    def with_data(self, data: Path) -> Self:
        """Return the protocol that the data sets below a folder allow."""
        return self

    def num_processes(self, options: TrainingOptions) -> int:
        """Return in how many processes the task runs."""
        return 1

    def unsupported_reason(self, backbone: Encoder) -> str:
        """Return why a backbone cannot do the task; empty if it can."""
        return ""

    def too_few_images(self, data: Path) -> str:
        """Return why the data below a folder have too few images; empty if they have enough."""
        return ""

    def too_few_labels(self, images: Mapping[str, Images]) -> str:
        """Return why the labels of the extracted splits cannot serve the task; empty if they do."""
        return ""

    def accepts_engine(self, engine: str) -> bool:
        """Return whether a record that this engine made counts as finished."""
        return True

    def units(self) -> dict[str, float]:
        """Return the number of images by kind of work, of the published counts; see `hours`."""
        counts = DATASETS[self.dataset].counts
        return {"forward": counts.get("trainval", 0) + counts.get("test", 0)}

    def memory_gb(self, num_processes: int) -> float:
        """Return a lower bound in GB on the GPU memory of a training step on a ResNet-50."""
        return 0.0

    def notes(self) -> list[str]:
        """Return notes for a plan on a task that will run."""
        return []

    def extracted(self) -> list[tuple[str, EvalTransform]]:
        """Return the splits of the data set whose frozen features it reads, and how it crops."""
        return []

    def extracted_images(self, folders: Folders) -> dict[str, Images]:
        """Return the splits whose features it reads; DataError if their labels cannot serve it."""
        splits = dict.fromkeys(split for split, _ in self.extracted())
        opened = {split: open_images(self.dataset, split, folders) for split in splits}
        if why := self.too_few_labels(opened):
            raise DataError(why)
        return opened

    def features(self, backbone: Encoder, folders: Folders) -> list[Features]:
        """Return the frozen features that it reads, extracted or from the cache.

        DataError if the task cannot work with the labels of these images; NotFiniteError if some
        features are infinite or not a number.
        """
        from transfer.frozen.finite import require_finite

        read, opened = [], self.extracted_images(folders)
        for split, transform in self.extracted():
            (features,) = features_of_backbones([backbone], self.dataset, split, transform, folders)
            images = opened[split]

            def name(row: int, split: str = split, images: Images = images) -> str:
                return f"{images.name(row)} ({self.dataset}, {split}) by {backbone.name}"

            require_finite(features.features, name)
            read.append(features)
        return read

    @abstractmethod
    def prepare(self, backbone: Encoder, folders: Folders) -> Any:
        """Touch every file that the run needs; return what `run` works on."""

    @abstractmethod
    def run(self, prepared: Any, folders: Folders, seed: int) -> Any:
        """Return predictions on the test split; may be interrupted and called again."""

    def metrics(self, predictions: Any) -> dict[str, float]:
        """Return metrics in percent, under the names of the paper tables: top-1 and top-5."""
        scores, labels = predictions.scores, predictions.labels
        found = {"top1": top1(scores, labels)}
        return found | ({"top5": topk(scores, labels, k=5)} if scores.shape[1] >= 5 else {})

    def details(self, predictions: Any) -> dict[str, object]:
        """Return what the metrics alone do not tell, for the record."""
        return {**predictions.details, "num_test": len(predictions.labels)}

    def gallery(self, predictions: Any, folders: Folders) -> Sequence[Tile]:
        """Return pictures of a few predictions: the images about which it is most wrong."""
        images = open_images(self.dataset, "test", folders)
        return mistakes(images, predictions.scores, predictions.labels)


@dataclass(frozen=True, kw_only=True)
class CenterCrops(Task):
    """A task that tests on center crops, and on the features of those of training images."""

    crop_px: int = 224
    engine: Literal["torch"] = "torch"
    margin_px: int = 32
    """Short side of the image minus the crop, for a crop of 224 px; in proportion for other crops.
    0 takes the whole image (CIFAR)."""

    @property
    def transform(self) -> EvalTransform:
        """Return the transform of the test images."""
        return EvalTransform.center(self.crop_px, self.margin_px)

    def for_backbone(self, backbone: Encoder) -> Self:
        """Return the protocol with crops of the backbone's image size."""
        return replace(self, crop_px=backbone.input.size_px)

    def extracted(self) -> list[tuple[str, EvalTransform]]:
        """Return the training and the test images, in center crops."""
        return [("trainval", self.transform), ("test", self.transform)]

    def prepare(self, backbone: Encoder, folders: Folders) -> Any:
        """Return the features of trainval and test, extracted or from the cache."""
        train, test = self.features(backbone, folders)
        names = open_images(self.dataset, "test", folders).class_names
        return TrainAndTest(train, test, occurring(names, train.labels, test.labels))


def occurring(names: tuple[str, ...], *labels: Any) -> tuple[str, ...]:
    """Return the names up to that of the last class in any of the labels (n,)."""
    return names[: 1 + max(int(part.max()) for part in labels)]


@dataclass(frozen=True, kw_only=True)
class NearestTraining(CenterCrops):
    """A task that finds the nearest training images, and needs as many of them."""

    def too_few_images(self, data: Path) -> str:
        """Return why the neighbors are more than the training images; empty if not or unknown."""
        num_images = expected_sizes(self.dataset, data).counts.get("trainval", 0)
        return self.too_few(num_images) if num_images else ""

    def too_few_labels(self, images: Mapping[str, Images]) -> str:
        """Return why the training images are fewer than the neighbors; empty if they are enough."""
        return self.too_few(len(images["trainval"]))

    @abstractmethod
    def too_few(self, num_images: int) -> str:
        """Return why so many training images are too few; empty if they are enough."""


def too_few_of_a_class(
    where: str, images: Images, names: Sequence[str], least: int, purpose: str, otherwise: str = ""
) -> str:
    """Return which class has the fewest images, if that is fewer than `least`; else an empty text.

    where: data set and split. purpose: clause that says what the images are for. otherwise: what
    can be done with fewer, but some, images of the class.
    """
    counts = np.bincount(images.label_array, minlength=len(names))[: len(names)]
    if counts.min() >= least:
        return ""
    name, short = names[int(counts.argmin())], int((counts < least).sum())
    advice = "Use the complete data set"
    if otherwise and counts.min():
        advice += f", or {otherwise}"
    return (
        f"{where}: class {name!r} has {counts.min()} of the {least} images that it needs: "
        f"{purpose}. Classes with too few: {short} of {len(counts)}. {advice}"
    )


@dataclass(frozen=True)
class Prepared:
    """Input of a run that trains on images."""

    backbone: Encoder
    train: Images
    test: Any
    """Test images, or their features."""


class TaskError(SuiteError, ValueError):
    """Error for a task that does not exist, or that an encoder cannot do."""


@dataclass(frozen=True)
class NamedTask:
    """A task of the suite, or an ablation of one."""

    key: str
    task: Task
    variant: str = ""
    """Name of the ablation; empty for the task of the suite."""
    changes: Mapping[str, Any] = field(default_factory=dict)
    """Numbers of the ablation that differ from the task's."""

    def ablation(self, name: str, **changes: Any) -> NamedTask:
        """Return the task with other numbers, under a protocol name and hash of its own.

        name: appended to that of the protocol. TaskError for a number that the protocol lacks, or
        that the backbone's input sets.
        """
        known = {spec.name for spec in fields(self.task) if spec.metadata.get("hashed", True)}
        known -= {"protocol", "crop_px", "resize_px", "std"}
        if unknown := sorted(set(changes) - known):
            raise TaskError(
                f"{self.key} has no {', '.join(unknown)}; its numbers are "
                f"{', '.join(sorted(known))}"
            )
        protocol = f"{self.task.protocol}+{name}"
        task = replace(self.task, protocol=protocol, **changes)
        variant = "+".join(filter(None, [self.variant, name]))
        return NamedTask(self.key, task, variant, {**self.changes, **changes})
