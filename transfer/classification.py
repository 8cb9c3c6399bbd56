"""An image classifier whose backbone learns as well: its network, its training, its scores."""

from dataclasses import dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader

from transfer.backbone import Backbone, InputFormat
from transfer.console import progress
from transfer.crops import RandomView, draw_seed
from transfer.datasets.images import Images
from transfer.features import (
    IMAGES_PER_BATCH,
    EvalImages,
    EvalTransform,
    forward,
    normalized,
    num_workers,
    standardized,
)
from transfer.processes import Process
from transfer.training import loop
from transfer.training.course import Precision
from transfer.training.state import TrainingSummary
from transfer.training.stream import Place


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
    """A crop as the network sees it, and its class."""

    image: Tensor
    """(3, H, W) float32."""
    label: Tensor
    """() int64."""

    def to(self, device: torch.device) -> "Sample":
        """Its tensors on a device, copied while the processor goes on where they are pinned."""
        return Sample(
            image=self.image.to(device, non_blocking=True),
            label=self.label.to(device, non_blocking=True),
        )

    def pin_memory(self) -> "Sample":
        """Its tensors where a GPU can fetch them; the loader calls it by this name."""
        return Sample(image=self.image.pin_memory(), label=self.label.pin_memory())


class TrainingSamples:
    """As `training.stream.Samples` says: the crops and flips of the linear probes."""

    wide = None
    """Crops have one size, whatever the image's shape."""

    def __init__(self, images: Images, form: InputFormat, crop_px: int, seed: int) -> None:
        self.images, self.form, self.seed = images, form, seed
        self.view = RandomView(px=crop_px)

    def __len__(self) -> int:
        return len(self.images)

    def __getitem__(self, place: Place) -> Sample:
        position, index = place
        view, label = self.view(*self.images[index], draw_seed(self.seed, position))
        return Sample(image=normalized(view, self.form), label=torch.tensor(label))


class Classifier(nn.Module):
    """A backbone and a linear layer; given samples, it returns the cross-entropy by its name."""

    def __init__(self, backbone: Backbone, num_classes: int, seed: int) -> None:
        """The layer starts at N(0, 0.01), drawn by the seed, its bias at 0 (MoCo's probe)."""
        super().__init__()
        head = nn.Linear(backbone.feature_dim, num_classes)
        generator = torch.Generator().manual_seed(seed)
        nn.init.normal_(head.weight, std=0.01, generator=generator)
        nn.init.zeros_(head.bias)
        network = backbone.network().requires_grad_(True)
        self.layers = nn.Sequential(network, head).to(memory_format=torch.channels_last)

    def forward(self, samples: list[Sample]) -> dict[str, Tensor]:
        """Of one batch."""
        images = torch.stack([sample.image for sample in samples])
        labels = torch.stack([sample.label for sample in samples])
        scores = self.layers(images.contiguous(memory_format=torch.channels_last))
        return {"cross-entropy": F.cross_entropy(scores.float(), labels)}

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
    form: InputFormat,
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
        TrainingSamples(images, form, course.crop_px, seed),
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
    loader = DataLoader(prepared, IMAGES_PER_BATCH, num_workers=num_workers(len(images)))
    with progress("test", "images", len(images)) as counter:
        for batch in loader:
            parts.append(forward(classifier.layers, standardized(batch, form)).cpu())
            counter.add(len(batch))
    return torch.cat(parts)
