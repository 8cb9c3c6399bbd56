"""Fine-tuning of a backbone with a linear classifier: network, training and scores."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from pretrain.running import stop
from pretrain.running.atomic_files import content_hash
from pretrain.running.errors import NotFiniteError
from pretrain.running.loader import load_stacked
from pretrain.running.processes import Process, any_process, this_process
from transfer.backbone import Backbone, InputFormat
from transfer.datasets.images import Images
from transfer.finetuning import loop
from transfer.finetuning.gpu import fused
from transfer.finetuning.schedule import Precision
from transfer.finetuning.side_by_side import Competitor, train_side_by_side
from transfer.finetuning.state import TrainingSummary
from transfer.finetuning.stream import Place
from transfer.frozen.crops import CROPS, RandomCrops, RandomView
from transfer.frozen.extraction import IMAGES_PER_BATCH, EvalImages, num_workers
from transfer.frozen.network import forward
from transfer.frozen.transforms import EvalTransform, Normalization
from transfer.running.console import print_line, progress

CODE_VERSION = 1  # part of every training's identity: raise it when the weights would change


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
class Crops:
    """The crops of a pass and their classes; the network normalizes them."""

    pixels: Tensor
    """(n, 3, H, W) uint8, RGB, channels last."""
    labels: Tensor
    """(n,)"""

    def to(self, device: torch.device) -> "Crops":
        """Return the crops on a device; copies from pinned memory are asynchronous."""
        pixels = self.pixels.to(device, non_blocking=True)
        return Crops(pixels=pixels, labels=self.labels.to(device, non_blocking=True))

    def pin_memory(self) -> "Crops":
        """Return the crops in pinned memory, from which a GPU copies asynchronously."""
        return Crops(pixels=self.pixels.pin_memory(), labels=self.labels.pin_memory())


class TrainingSamples:
    """The `stream.Samples` of images: the random crops and flips of the linear probes.

    Images whose pixels are kept are cropped from there.
    """

    wide = None
    """None, since all crops have the same size, whatever the image's shape."""

    def __init__(self, images: Images, crop_px: int, seed: int) -> None:
        self.crops = RandomCrops(images, RandomView(px=crop_px), seed)

    def __len__(self) -> int:
        return len(self.crops.images)

    def batch(self, places: Sequence[Place]) -> list[Crops]:
        """Return the crops of these places, stacked."""
        pixels, labels = self.crops(places)
        return [Crops(pixels=pixels, labels=labels)]


class Classifier(nn.Module):
    """A backbone and a linear layer; called with crops, it returns the cross-entropy by name."""

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

    def forward(self, samples: list[Crops]) -> dict[str, Tensor]:
        """Return the cross-entropy of the crops of a pass, which are the only sample."""
        (crops,) = samples
        images = (crops.pixels.float() / 255 - self.get_buffer("mean")) / self.get_buffer("std")
        return {"cross-entropy": F.cross_entropy(self.layers(images).float(), crops.labels)}

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


def training_folder(
    work: Path, name: str, backbone: Backbone, images: Images, course: FineTuning, seed: int
) -> Path:
    """Return the folder of a training's state, named by a hash of all that shapes its weights.

    A training that was begun on Pillow's crops, crops/1, is not continued; a line says so.
    """
    same = [CODE_VERSION, backbone.sha256, images.fingerprint, asdict(course), seed]
    folder = work / f"{name}-{content_hash([*same, CROPS], 12)}"
    older = work / f"{name}-{content_hash(same, 12)}"
    if older.exists() and not folder.exists() and this_process().is_main:
        print_line(
            "train",
            f"{name}  {older} was begun on crops of other pixels, crops/1: the training starts "
            f"anew on {CROPS}, and that folder may be deleted",
        )
    return folder


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
    where = next(classifier.layers.parameters()).device
    normalize, pinned = Normalization(form, where), where.type == "cuda"
    everything, workers = range(len(images)), num_workers(len(images))
    with progress("test", "images", len(images)) as counter:
        for batch in load_stacked(prepared, everything, IMAGES_PER_BATCH, workers, pinned=pinned):
            if any_process([stop.is_requested()], this_process())[0]:
                raise stop.Stopped(stop.EXIT_RESUMABLE)
            parts.append(forward(classifier.layers, normalize(batch)).cpu())
            counter.add(len(batch))
    return torch.cat(parts)
