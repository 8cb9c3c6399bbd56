"""Fine-tuning of a backbone with a linear classifier: network, training and scores."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pretrain.running import stop
from pretrain.running.atomic_files import content_hash
from pretrain.running.console import progress
from pretrain.running.processes import Process, any_process, this_process
from transfer.datasets.images import Images, unchanged
from transfer.encoders.encoder import Encoder, InputFormat
from transfer.finetuning import loop
from transfer.finetuning.loop import fused
from transfer.finetuning.schedule import Precision, TrainingSchedule
from transfer.finetuning.state import Training, summary
from transfer.finetuning.stream import Sample, Samples, StreamItem
from transfer.frozen.crops import CROPS_VERSION, RandomCrops
from transfer.frozen.extraction import EvalImages, raw_batches
from transfer.frozen.network import forward
from transfer.frozen.transforms import EvalTransform, Normalization

CODE_VERSION = 1  # part of each training's identity: increase it when the weights would change


@dataclass(frozen=True, kw_only=True)
class FineTuning(TrainingSchedule):
    """Settings of the training."""

    iterations: int
    milestones: tuple[int, ...]
    decay: float
    learning_rate: float
    """Learning rate of the backbone."""
    batch_size: int
    precision: Precision
    warmup_iterations: int = 0
    warmup_factor: float = 1.0
    accumulated: int = 1
    precise_norm_batches: int = 0
    head_factor: float
    """Learning rate of the classifier, relative to the backbone's."""
    sgd_momentum: float
    weight_decay: float
    """Weight decay of all parameters, including norm layers."""
    crop_px: int


@dataclass(frozen=True, kw_only=True, eq=False)
class Crops(Sample):
    """The crops and labels of a micro-batch; the network normalizes the crops."""

    pixels: Tensor
    """(n, 3, H, W) uint8, RGB, channels last."""
    labels: Tensor
    """(n,)"""


def training_samples(images: Images, crop_px: int, seed: int) -> Samples[Crops]:
    """Return stacked random crops and flips, as for the linear probes.

    Cached images are cropped without decoding them again.
    """
    crops = RandomCrops(images, crop_px, seed)

    def batch(items: Sequence[StreamItem]) -> list[Crops]:
        pixels, labels = crops(items)
        return [Crops(pixels=pixels, labels=labels)]

    return Samples(len(images), batch)


class Classifier(nn.Module):
    """A backbone with a linear classifier, which returns the loss of crops."""

    def __init__(self, backbone: Encoder, num_classes: int, seed: int) -> None:
        """Initialize the classifier as in MoCo.

        Weights are N(0, 0.01^2) from the seed, biases are 0.
        """
        super().__init__()
        head = nn.Linear(backbone.feature_dim, num_classes)
        generator = torch.Generator().manual_seed(seed)
        nn.init.normal_(head.weight, std=0.01, generator=generator)
        nn.init.zeros_(head.bias)
        for name in ("mean", "std"):
            values = torch.tensor(getattr(backbone.input, name), dtype=torch.float32)[:, None, None]
            self.register_buffer(name, values, persistent=False)
        network = backbone.network().requires_grad_(True)
        self.layers = nn.Sequential(network, head).to(memory_format=torch.channels_last)

    def forward(self, samples: list[Crops]) -> dict[str, Tensor]:
        """Return the cross-entropy of a micro-batch, which is a single sample."""
        (crops,) = samples
        images = (crops.pixels.float() / 255 - self.get_buffer("mean")) / self.get_buffer("std")
        return {"cross-entropy": F.cross_entropy(self.layers(images).float(), crops.labels)}

    def optimizer(self, schedule: FineTuning) -> torch.optim.SGD:
        """Return SGD with separate learning rates for backbone and classifier."""
        backbone, head = self.layers
        return torch.optim.SGD(
            [
                {"params": list(backbone.parameters()), "rate_factor": 1.0},
                {"params": list(head.parameters()), "rate_factor": schedule.head_factor},
            ],
            lr=schedule.learning_rate,
            momentum=schedule.sgd_momentum,
            weight_decay=schedule.weight_decay,
            fused=fused(self, schedule.precision),
        )


def fine_tune(
    backbone: Encoder,
    images: Images,
    schedule: FineTuning,
    *,
    name: str,
    seed: int,
    work: Path,
    process: Process,
) -> tuple[Classifier, dict[str, Any]]:
    """Train all layers of a classifier.

    Raises NotFiniteError if the training diverges.

    name: name of the training in messages, and of its folder in `work`.
    """
    classifier = Classifier(backbone, len(images.class_names), seed).to(process.device)
    # everything that affects the weights
    identity = [
        CODE_VERSION,
        backbone.sha256,
        images.fingerprint,
        asdict(schedule),
        seed,
        CROPS_VERSION,
    ]
    training = Training(
        network=classifier,
        optimizer=classifier.optimizer(schedule),
        schedule=schedule,
        folder=work / f"{name}-{content_hash(identity, 12)}",
        name=name,
    )
    samples = training_samples(images, schedule.crop_px, seed)
    with unchanged(images, training):
        loop.train(training, samples, seed=seed, process=process, one_size=True)
    return classifier, summary(training)


def predict_scores(
    classifier: Classifier, images: Images, transform: EvalTransform, input_format: InputFormat
) -> Tensor:
    """Return the scores (n, L) of a trained classifier, on the CPU."""
    batch_scores = []
    device = next(classifier.layers.parameters()).device
    normalize, prepared = Normalization(input_format, device), EvalImages(images, transform)
    with progress("test", "images", len(images)) as counter:
        for _, batch in raw_batches(prepared, 0, pinned=device.type == "cuda"):
            if any_process([stop.is_requested()], this_process())[0]:
                raise stop.Stopped(stop.EXIT_RESUMABLE)
            batch_scores.append(forward(classifier.layers, normalize(batch)).cpu())
            counter.add(len(batch))
    return torch.cat(batch_scores)
