"""The only supervised loop: linear heads on a frozen backbone, several learning rates at once.

The forward pass of the frozen backbone is what costs. Heads that differ only in their learning
rate see the same random crops, so one pass serves them all: a search over seven rates costs what
one training costs, and each head ends with the weights that a training of its own would give it.
"""

import hashlib
import json
import math
import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import torch
from PIL import Image
from torch import Tensor
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2

from transfer import stop
from transfer.backbone import Backbone, InputFormat
from transfer.console import progress
from transfer.datasets.images import Images
from transfer.features import forward, frozen_network, normalized, num_workers

SAVE_EVERY_S = 120


class NotFiniteError(ArithmeticError):
    """The loss of every head is infinite or not a number."""


@dataclass(frozen=True, kw_only=True)
class ProbeTraining:
    """How linear heads are trained on random crops."""

    learning_rates: tuple[float, ...]
    """One head each."""
    batch_size: int = 256
    epochs: float = 0
    """Passes over the images; either this or `steps`."""
    steps: int = 0
    """Optimizer steps; either this or `epochs`."""
    decay: Literal["cosine", "step"] = "cosine"
    """Cosine to zero per step, or times 0.1 at each milestone."""
    milestones: tuple[float, ...] = (0.6, 0.8)
    """Shares of the training."""
    sgd_momentum: float = 0.9
    weight_decay: float = 0.0
    crop_px: int = 224
    crop_scale: tuple[float, float] = (0.08, 1.0)
    """Area of the random crop, of the image's; torchvision's default."""
    weight_std: float = 0.01
    """Of the initial weights; biases start at 0 (MoCo's probe)."""

    def num_steps(self, num_images: int) -> int:
        """Optimizer steps in all."""
        if bool(self.epochs) == bool(self.steps):
            raise ValueError(f"give epochs or steps, found {self.epochs} and {self.steps}")
        return self.steps or max(1, round(self.epochs * num_images / self.batch_size))

    def rate_factor(self, share: float) -> float:
        """Of the learning rate after this share of the training."""
        if self.decay == "cosine":
            return 0.5 * (1 + math.cos(math.pi * share))
        return float(0.1 ** sum(share >= milestone for milestone in self.milestones))


@dataclass(frozen=True)
class Heads:
    """R linear classifiers."""

    weight: Tensor
    """(R, L, C)."""
    bias: Tensor
    """(R, L)."""

    def scores(self, features: Tensor) -> Tensor:
        """(R, n, L) of features (n, C)."""
        weight, bias = self.weight.to(features.device), self.bias.to(features.device)
        return torch.einsum("nc,rlc->rnl", features, weight) + bias[:, None]

    def only(self, index: int) -> "Heads":
        """One of them."""
        return Heads(self.weight[index : index + 1], self.bias[index : index + 1])


class HeadOptimizer:
    """SGD with momentum as torch.optim.SGD has it, with a learning rate per head.

    The R heads are rows of one matrix, so that a step is one product forward and one backward.
    """

    def __init__(self, heads: Heads, training: ProbeTraining, where: torch.device) -> None:
        count, classes, width = heads.weight.shape
        self.shape = (count, classes, width)
        self.training = training
        self.weight = heads.weight.reshape(count * classes, width).to(where).clone()
        self.bias = heads.bias.reshape(count * classes).to(where).clone()
        self.velocity = [torch.zeros_like(self.weight), torch.zeros_like(self.bias)]
        rates = torch.tensor(training.learning_rates, dtype=self.weight.dtype, device=where)
        self.rates = rates.repeat_interleave(classes)

    def step(self, features: Tensor, labels: Tensor, factor: float) -> Tensor:
        """One step of every head on features (n, C), labels (n,); the heads' losses (R,)."""
        count, classes, _ = self.shape
        logits = torch.addmm(self.bias, features, self.weight.T).view(-1, count, classes)
        log_p = logits.log_softmax(dim=2)
        picked = labels.view(-1, 1, 1).expand(-1, count, 1)
        losses = -log_p.gather(2, picked).squeeze(2).mean(dim=0)
        # d loss / d logits of cross-entropy: softmax minus one-hot
        slope = log_p.exp_()
        slope.scatter_add_(2, picked, slope.new_full(picked.shape, -1.0))
        slope = slope.view(len(labels), count * classes) / len(labels)
        self._update(0, self.weight, slope.T @ features, self.rates[:, None] * factor)
        self._update(1, self.bias, slope.sum(dim=0), self.rates * factor)
        return losses

    def _update(self, index: int, parameter: Tensor, slope: Tensor, rate: Tensor) -> None:
        if self.training.weight_decay:
            slope = slope.add(parameter, alpha=self.training.weight_decay)
        velocity = self.velocity[index].mul_(self.training.sgd_momentum).add_(slope)
        parameter.sub_(rate * velocity)

    def heads(self) -> Heads:
        """The heads as they are now, on the CPU."""
        return Heads(self.weight.view(self.shape).cpu(), self.bias.view(self.shape[:2]).cpu())

    def state(self) -> dict[str, Tensor]:
        """All that a resumed run needs."""
        names = ("weight", "bias", "weight_velocity", "bias_velocity")
        return dict(zip(names, (self.weight, self.bias, *self.velocity), strict=True))

    def load(self, state: dict[str, Tensor]) -> None:
        """Go on from a saved state."""
        for name, tensor in self.state().items():
            tensor.copy_(state[name])


def new_heads(rates: Sequence[float], num_classes: int, width: int, std: float, seed: int) -> Heads:
    """R heads with the same initial weights, as R runs of one seed would have."""
    generator = torch.Generator().manual_seed(seed)
    weight = std * torch.randn(num_classes, width, generator=generator)
    count = len(rates)
    return Heads(weight.expand(count, -1, -1).clone(), torch.zeros(count, num_classes))


def train_heads(
    backbone: Backbone, images: Images, training: ProbeTraining, seed: int, folder: Path
) -> Heads:
    """Train a head per learning rate on random crops of the images.

    An interrupted call, made again with the same arguments, ends with the same weights. A head
    whose rate is too large may diverge, its scores are then not finite; NotFiniteError if all do.
    """
    network = frozen_network(backbone)
    where = next(network.parameters()).device
    num_classes = len(images.class_names)
    rates = training.learning_rates
    heads = new_heads(rates, num_classes, backbone.feature_dim, training.weight_std, seed)
    optimizer = HeadOptimizer(heads, training, where)
    steps = training.num_steps(len(images))
    saved = SavedTraining(folder / f"heads-{_identity(backbone, images, training, seed)}.pt")
    start = saved.restore(optimizer)
    with progress("train", f"{len(rates)} rates", steps, "steps", done=start) as counter:
        for step, (pixels, labels) in enumerate(
            crop_batches(images, training, backbone.input, seed, range(start, steps)), start
        ):
            factor = training.rate_factor(step / steps)
            losses = optimizer.step(forward(network, pixels), labels.to(where), factor)
            counter.add(1)
            if step % 50 == 0 or step == steps - 1:
                _require_finite(losses, step)
            saved.save_when_due(optimizer, step + 1)
    saved.save(optimizer, steps)
    return optimizer.heads()


def _require_finite(losses: Tensor, step: int) -> None:
    if not bool(losses.isfinite().any()):
        raise NotFiniteError(
            f"step {step}: the loss of all {len(losses)} heads is infinite or not a number; "
            "no result is written. Check the backbone's features, or lower the rates"
        )


def _identity(backbone: Backbone, images: Images, training: ProbeTraining, seed: int) -> str:
    parts = [backbone.sha256, backbone.precision, images.fingerprint, asdict(training), seed]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:16]


class SavedTraining:
    """The training's state on the disk, replaced whole at every save."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.last = time.monotonic()
        path.parent.mkdir(parents=True, exist_ok=True)

    def restore(self, optimizer: HeadOptimizer) -> int:
        """Load what is there; the number of steps it has behind it."""
        if not self.path.exists():
            return 0
        state = torch.load(self.path, map_location="cpu", weights_only=True)
        optimizer.load(state)
        return int(state["step"])

    def save_when_due(self, optimizer: HeadOptimizer, step: int) -> None:
        """Save now and then, and leave if a signal asked for it."""
        if stop.asked() or time.monotonic() - self.last > SAVE_EVERY_S:
            self.save(optimizer, step)
            stop.leave_if_asked()

    def save(self, optimizer: HeadOptimizer, step: int) -> None:
        """The state after `step` steps."""
        temporary = self.path.with_suffix(".tmp")
        with temporary.open("wb") as file:
            torch.save({**optimizer.state(), "step": step}, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(self.path)
        self.last = time.monotonic()


class RandomCrops(Dataset[tuple[Tensor, Tensor]]):
    """Random resized crop and flip; what is drawn depends on the seed and the place in the run.

    So neither the number of loader processes nor an interruption changes a pixel.
    """

    def __init__(
        self, images: Images, training: ProbeTraining, form: InputFormat, seed: int
    ) -> None:
        self.images, self.training, self.form, self.seed = images, training, form, seed
        self.crop = v2.RandomResizedCrop(
            training.crop_px, scale=training.crop_scale, antialias=True
        )
        self.flip = v2.RandomHorizontalFlip()

    def __getitem__(self, place: tuple[int, int]) -> tuple[Tensor, Tensor]:
        """place: position in the run, index of the image."""
        position, index = place
        image, label = self.images[index]
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed((self.seed << 40) + position)
            view: Image.Image = self.flip(self.crop(image))
        return normalized(view, self.form), torch.as_tensor(label)


def crop_batches(
    images: Images, training: ProbeTraining, form: InputFormat, seed: int, steps: range
) -> Iterator[tuple[Tensor, Tensor]]:
    """Batches of steps: pixels (n, 3, H, W) and labels (n,)."""
    places = Places(len(images), training.batch_size, seed, steps)
    workers = num_workers(len(steps) * training.batch_size)
    yield from DataLoader(
        RandomCrops(images, training, form, seed), batch_sampler=places, num_workers=workers
    )


class Places:
    """Which images make up which batch: reshuffled passes over the set, laid end to end.

    Every batch is full; where the set does not divide by the batch, one batch spans two passes.
    """

    def __init__(self, num_images: int, batch_size: int, seed: int, steps: range) -> None:
        self.num_images, self.batch_size = num_images, batch_size
        self.seed, self.steps = seed, steps
        self.turn, self.order = -1, [0]

    def __len__(self) -> int:
        return len(self.steps)

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        for step in self.steps:
            first = step * self.batch_size
            yield [(place, self._index(place)) for place in range(first, first + self.batch_size)]

    def _index(self, place: int) -> int:
        turn, offset = divmod(place, self.num_images)
        if turn != self.turn:
            generator = torch.Generator().manual_seed((self.seed << 24) + turn)
            self.order = torch.randperm(self.num_images, generator=generator).tolist()
            self.turn = turn
        return self.order[offset]
