"""Fine-tuning of a backbone with a linear classifier: network, training and scores."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor, nn

from transfer.backbone import Backbone, InputFormat
from transfer.datasets.images import Images
from transfer.finetuning import loop
from transfer.finetuning.gpu import fused
from transfer.finetuning.schedule import Precision
from transfer.finetuning.side_by_side import Competitor, train_side_by_side
from transfer.finetuning.state import TrainingSummary
from transfer.finetuning.stream import Place
from transfer.frozen.crops import RandomView, draw_seed
from transfer.frozen.extraction import IMAGES_PER_BATCH, EvalImages, num_workers
from transfer.frozen.network import forward, upload
from transfer.frozen.transforms import EvalTransform, normalize_pixels
from transfer.running import stop
from transfer.running.console import progress
from transfer.running.loader import load_stacked
from transfer.running.not_finite import NotFiniteError
from transfer.running.processes import Process, any_process, this_process


@dataclass(frozen=True, kw_only=True)
class FineTuning:
    """Settings of the training; the first eleven fields are those of `schedule.Course`."""

    iterations: int
    milestones: tuple[int, ...]
    """Iterations after which the learning rates decay."""
    decay: float
    """Factor of the learning rates at each milestone."""
    learning_rate: float
    """Learning rate of the backbone."""
    batch_size: int
    precision: Precision
    warmup_iterations: int = 0
    warmup_factor: float = 1.0
    accumulated: int = 1
    precise_norm_batches: int = 0
    head_factor: float
    """Learning rate of the classifier in units of the backbone's."""
    sgd_momentum: float
    weight_decay: float
    """Weight decay of all parameters, those of norms included."""
    crop_px: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Sample:
    """A crop and its class.

    The fields are no tensors: a batch of hundreds, each in a shared-memory file, could exceed the
    limit of open files of a process. The network sends the whole batch to its device at once.
    """

    pixels: NDArray[np.uint8]
    """(H, W, 3), RGB."""
    label: int

    def to(self, device: torch.device) -> "Sample":
        """Return itself; the network moves the batch."""
        return self

    def pin_memory(self) -> "Sample":
        """Return itself; there is no tensor to pin."""
        return self


class TrainingSamples:
    """Samples of `stream.Samples` with the random crops and flips of the linear probes."""

    wide = None
    """None, since all crops have the same size, whatever the image's shape."""

    def __init__(self, images: Images, crop_px: int, seed: int) -> None:
        self.images, self.seed = images, seed
        self.view = RandomView(px=crop_px)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, place: Place) -> Sample:
        position, index = place
        view, label = self.view(*self.images[index], draw_seed(self.seed, position))
        return Sample(pixels=np.asarray(view), label=label)


class Classifier(nn.Module):
    """A backbone and a linear layer; called with samples, it returns the cross-entropy by name."""

    def __init__(self, backbone: Backbone, num_classes: int, seed: int) -> None:
        """Initialize the layer's weights by N(0, 0.01^2) from the seed, its bias by 0 (MoCo)."""
        super().__init__()
        head = nn.Linear(backbone.feature_dim, num_classes)
        generator = torch.Generator().manual_seed(seed)
        nn.init.normal_(head.weight, std=0.01, generator=generator)
        nn.init.zeros_(head.bias)
        for name in ("mean", "std"):
            values = torch.tensor(getattr(backbone.input, name))[:, None, None]
            self.register_buffer(name, values, persistent=False)
        network = backbone.network().requires_grad_(True)
        self.layers = nn.Sequential(network, head).to(memory_format=torch.channels_last)

    def forward(self, samples: list[Sample]) -> dict[str, Tensor]:
        """Return the cross-entropy of one batch."""
        mean, std = self.get_buffer("mean"), self.get_buffer("std")
        stacked = torch.from_numpy(np.stack([sample.pixels for sample in samples]))
        pixels = upload(stacked, mean.device)
        labels = upload(torch.tensor([sample.label for sample in samples]), mean.device)
        # the memory of (n, H, W, 3) is that of (n, 3, H, W) in channels-last layout: no copy
        images = (pixels.permute(0, 3, 1, 2).float() / 255 - mean) / std
        return {"cross-entropy": F.cross_entropy(self.layers(images).float(), labels)}

    def optimizer(self, course: FineTuning) -> torch.optim.SGD:
        """Return SGD with a learning rate for the backbone and one for the classifier."""
        backbone, head = self.layers
        return torch.optim.SGD(
            [
                {"params": list(backbone.parameters()), "rate_factor": 1.0},
                {"params": list(head.parameters()), "rate_factor": course.head_factor},
            ],
            lr=course.learning_rate,
            momentum=course.sgd_momentum,
            weight_decay=course.weight_decay,
            fused=fused(self),
        )


def train(
    classifier: Classifier,
    images: Images,
    course: FineTuning,
    *,
    seed: int,
    folder: Path,
    process: Process,
    name: str,
) -> TrainingSummary:
    """Train all layers on random crops; see `loop.train`."""
    classifier.to(process.device)
    return loop.train(
        classifier,
        classifier.optimizer(course),
        TrainingSamples(images, course.crop_px, seed),
        course,
        seed=seed,
        folder=folder,
        process=process,
        name=name,
        one_size=True,
    )


def train_rates(
    classifiers: Sequence[Classifier],
    images: Images,
    courses: Sequence[FineTuning],
    *,
    seed: int,
    folders: Sequence[Path],
    process: Process,
    names: Sequence[str],
) -> list[TrainingSummary | NotFiniteError]:
    """Train classifiers on the same random crops, several of them side by side.

    The error of one that diverges takes the place of its summary; a single one raises it.
    """
    if len(classifiers) == 1:
        (classifier,), (course,), (folder,), (name,) = classifiers, courses, folders, names
        return [
            train(classifier, images, course, seed=seed, folder=folder, process=process, name=name)
        ]
    competitors = []
    for classifier, course, folder, name in zip(classifiers, courses, folders, names, strict=True):
        classifier.to(process.device)
        competitors.append(
            Competitor(
                network=classifier,
                optimizer=classifier.optimizer(course),
                course=course,
                folder=folder,
                name=name,
            )
        )
    samples = TrainingSamples(images, courses[0].crop_px, seed)
    return train_side_by_side(competitors, samples, seed=seed, process=process, one_size=True)


def predict_scores(
    classifier: Classifier, images: Images, transform: EvalTransform, form: InputFormat
) -> Tensor:
    """Return the scores (n, L) of a trained classifier, on the CPU."""
    parts = []
    prepared = EvalImages(images, transform)
    everything, workers = range(len(images)), num_workers(len(images))
    with progress("test", "images", len(images)) as counter:
        for batch in load_stacked(prepared, everything, IMAGES_PER_BATCH, workers):
            if any_process([stop.is_requested()], this_process())[0]:
                raise stop.Stopped(stop.EXIT_RESUMABLE)
            parts.append(forward(classifier.layers, normalize_pixels(batch, form)).cpu())
            counter.add(len(batch))
    return torch.cat(parts)
