"""An image classifier whose backbone learns as well: its network, its training, its scores."""

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
from transfer.finetuning.schedule import Precision
from transfer.finetuning.state import TrainingSummary
from transfer.finetuning.stream import Place
from transfer.frozen.crops import RandomView, draw_seed
from transfer.frozen.features import (
    IMAGES_PER_BATCH,
    EvalImages,
    EvalTransform,
    forward,
    num_workers,
    standardized,
)
from transfer.running import stop
from transfer.running.console import progress
from transfer.running.loader import load_stacked
from transfer.running.processes import Process, any_process, this_process


@dataclass(frozen=True, kw_only=True)
class FineTuning:
    """How the whole network is trained; the first eleven fields are what `training.Course` asks."""

    iterations: int
    milestones: tuple[int, ...]
    """Iterations after which the learning rates decay."""
    decay: float
    """What a milestone multiplies them by."""
    learning_rate: float
    """Of the backbone."""
    batch_size: int
    precision: Precision
    warmup_iterations: int = 0
    warmup_factor: float = 1.0
    accumulated: int = 1
    precise_norm_batches: int = 0
    head_factor: float
    """The classifier's learning rate in units of the backbone's."""
    sgd_momentum: float
    weight_decay: float
    """Of all parameters, norms' too."""
    crop_px: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Sample:
    """A crop and its class.

    No tensors: hundreds of them a batch, each a file of shared memory, would be more than a process
    may open. The network sends the whole batch to its device at once.
    """

    pixels: NDArray[np.uint8]
    """(H, W, 3), RGB."""
    label: int

    def to(self, device: torch.device) -> "Sample":
        """Itself."""
        return self

    def pin_memory(self) -> "Sample":
        """Itself."""
        return self


class TrainingSamples:
    """As `training.stream.Samples` says: the crops and flips of the linear probes."""

    wide = None
    """Crops have one size, whatever the image's shape."""

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
    """A backbone and a linear layer; given samples, it returns the cross-entropy by its name."""

    def __init__(self, backbone: Backbone, num_classes: int, seed: int) -> None:
        """The layer starts at N(0, 0.01), drawn by the seed, its bias at 0 (MoCo's probe)."""
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
        """Of one batch."""
        mean, std = self.get_buffer("mean"), self.get_buffer("std")
        pixels = torch.from_numpy(np.stack([sample.pixels for sample in samples])).to(mean.device)
        labels = torch.tensor([sample.label for sample in samples]).to(mean.device)
        # as it lies, (n, H, W, 3) is the memory of (n, 3, H, W) with the channels last
        images = (pixels.permute(0, 3, 1, 2).float() / 255 - mean) / std
        return {"cross-entropy": F.cross_entropy(self.layers(images).float(), labels)}

    def optimizer(self, course: FineTuning) -> torch.optim.SGD:
        """SGD with a learning rate for the backbone and one for the classifier."""
        backbone, head = self.layers
        return torch.optim.SGD(
            [
                {"params": list(backbone.parameters()), "rate_factor": 1.0},
                {"params": list(head.parameters()), "rate_factor": course.head_factor},
            ],
            lr=course.learning_rate,
            momentum=course.sgd_momentum,
            weight_decay=course.weight_decay,
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
    """Train all layers on random crops; the rest is as `training.loop.train` says."""
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
    )


def predicted(
    classifier: Classifier, images: Images, transform: EvalTransform, form: InputFormat
) -> Tensor:
    """Scores (n, L) of a trained classifier, on the CPU."""
    parts = []
    prepared = EvalImages(images, transform)
    everything, workers = range(len(images)), num_workers(len(images))
    with progress("test", "images", len(images)) as counter:
        for batch in load_stacked(prepared, everything, IMAGES_PER_BATCH, workers):
            if any_process([stop.asked()], this_process())[0]:
                raise stop.Stopped(stop.REQUEUE)
            parts.append(forward(classifier.layers, standardized(batch, form)).cpu())
            counter.add(len(batch))
    return torch.cat(parts)
