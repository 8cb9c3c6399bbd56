"""Training of linear heads on a frozen backbone, with several learning rates at once.

The forward pass of the frozen backbone dominates the cost. Heads that differ only in learning rate
and decay see the same random crops and share this pass: a search over seven rates costs as much as
one training, and so do four papers' readings of one probe. Each head ends with the weights that a
separate training would give it.
"""

import io
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from pathlib import Path
from pickle import UnpicklingError

import torch
from torch import Tensor, nn

from transfer.backbone import Backbone
from transfer.convert.architectures import network_and_heads
from transfer.datasets.images import Images
from transfer.frozen.classifier import Heads, save_classifier
from transfer.frozen.crops import CROPS, RandomView, crop_batches
from transfer.frozen.features import Features, Predictions
from transfer.frozen.head_shares import entropy_bits, head_shares
from transfer.frozen.network import forward, frozen_network, upload
from transfer.frozen.probe_training import ProbeTraining
from transfer.frozen.transforms import QUARTER_TURNS
from transfer.metrics import top1
from transfer.running import stop
from transfer.running.atomic_files import write_whole
from transfer.running.console import print_line, progress
from transfer.running.content_hash import content_hash
from transfer.running.lock import BusyError, lock_folder
from transfer.running.not_finite import NotFiniteError

SAVE_EVERY_S = 120
TORN = (RuntimeError, EOFError, UnpicklingError, ValueError, OSError)
"""Errors of torch.load for a file that was cut short or filled with zeros."""


class NotFrozenError(RuntimeError):
    """Error for a frozen backbone that has changed."""


class HeadOptimizer:
    """SGD with momentum in the form of torch.optim.SGD, with a learning rate per head.

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

    def step(self, features: Tensor, labels: Tensor, share: float) -> Tensor:
        """Update every head on features (n, C) and labels (n,); return the heads' losses (R,).

        share: finished share of the training.
        """
        count, classes, _ = self.shape
        factors = torch.tensor(self.training.rate_factors(share), dtype=self.rates.dtype)
        rates = self.rates * upload(factors, self.rates.device).repeat_interleave(classes)
        logits = torch.addmm(self.bias, features, self.weight.T).view(-1, count, classes)
        log_p = logits.log_softmax(dim=2)
        picked = labels.view(-1, 1, 1).expand(-1, count, 1)
        losses = -log_p.gather(2, picked).squeeze(2).mean(dim=0)
        # d loss / d logits of cross-entropy: softmax minus one-hot
        slope = log_p.exp_()
        slope.scatter_add_(2, picked, slope.new_full(picked.shape, -1.0))
        slope = slope.view(len(labels), count * classes) / len(labels)
        self._update(0, self.weight, slope.T @ features, rates[:, None])
        self._update(1, self.bias, slope.sum(dim=0), rates)
        return losses

    def _update(self, index: int, parameter: Tensor, slope: Tensor, rate: Tensor) -> None:
        direction = slope
        if self.training.weight_decay:
            direction = slope.add(parameter, alpha=self.training.weight_decay)
        if self.training.optimizer == "lars":
            direction = direction * self._ratios(parameter, slope).view_as(rate)
        velocity = self.velocity[index].mul_(self.training.sgd_momentum).add_(direction)
        parameter.sub_(rate * velocity)

    def _ratios(self, parameter: Tensor, slope: Tensor) -> Tensor:
        """Return LARS's local rates (R * L,); 1 if a head's parameter or gradient is all zero."""
        count, classes, _ = self.shape
        size, gradient = (t.reshape(count, -1).norm(dim=1) for t in (parameter, slope))
        ratio = self.training.trust_coefficient * size
        ratio = ratio / (gradient + self.training.weight_decay * size + 1e-8)
        defined = (size > 0) & (gradient > 0)
        return torch.where(defined, ratio, torch.ones_like(ratio)).repeat_interleave(classes)

    def heads(self) -> Heads:
        """Return the current heads, on the CPU."""
        return Heads(self.weight.view(self.shape).cpu(), self.bias.view(self.shape[:2]).cpu())

    def state(self) -> dict[str, Tensor]:
        """Return the state that a resumed run needs."""
        names = ("weight", "bias", "weight_velocity", "bias_velocity")
        return dict(zip(names, (self.weight, self.bias, *self.velocity), strict=True))

    def load(self, state: dict[str, Tensor]) -> None:
        """Restore a saved state."""
        for name, tensor in self.state().items():
            tensor.copy_(state[name])


def new_heads(rates: Sequence[float], num_classes: int, width: int, std: float, seed: int) -> Heads:
    """Return R heads with equal initial weights, those that R separate runs of the seed have."""
    generator = torch.Generator().manual_seed(seed)
    weight = std * torch.randn(num_classes, width, generator=generator)
    count = len(rates)
    return Heads(weight.expand(count, -1, -1).clone(), torch.zeros(count, num_classes))


class EpochAccuracies:
    """Top-1 of each head on given features after each pass over the training images.

    It is only reported; nothing is chosen by it. The value of a diverged head is -1.
    """

    def __init__(self, features: Features) -> None:
        self.features = features
        self.top1: list[list[float]] = []

    def add(self, heads: Heads) -> None:
        """Measure the heads after one more pass."""
        scores = heads.scores(self.features.features)
        labels = self.features.labels
        self.top1.append([top1(s, labels) if bool(s.isfinite().all()) else -1.0 for s in scores])


def train_heads(
    backbone: Backbone,
    images: Images,
    training: ProbeTraining,
    seed: int,
    folder: Path,
    curve: EpochAccuracies | None = None,
) -> Heads:
    """Train a head per learning rate on random crops of the images; the state is in the folder.

    An interrupted call, repeated with the same arguments, ends with the same weights. A head whose
    rate is too large may diverge, with scores that are not finite; NotFiniteError if all diverge.
    NotFrozenError if a bit of the backbone has changed since the first pass.
    """
    network = frozen_network(backbone)
    before = weights_of(network)
    where = next(network.parameters()).device
    num_classes = QUARTER_TURNS if training.labels == "rotations" else len(images.class_names)
    rates = training.learning_rates
    heads = new_heads(rates, num_classes, backbone.feature_dim, training.weight_std, seed)
    optimizer = HeadOptimizer(heads, training, where)
    ends = training.pass_ends(len(images))
    steps = ends[-1]
    saved = SavedTraining(folder / _file(backbone, images, training, seed))
    start = saved.restore(optimizer, curve)
    with progress("train", f"{len(rates)} rates", steps, "steps", done=start) as counter:
        view = RandomView(px=training.crop_px, labels=training.labels)
        batches = crop_batches(
            images, view, backbone.input, seed, training.batch_size, range(start, steps)
        )
        for step, (pixels, labels) in enumerate(batches, start):
            losses = optimizer.step(forward(network, pixels), labels.to(where), step / steps)
            counter.add(1)
            done = step + 1
            if step % 50 == 0 or done == steps:
                _require_finite(losses, step)
            if done in (start + ends[0], steps):
                require_frozen(network, before)
            if curve is not None and done in ends:
                curve.add(optimizer.heads())
            saved.save_when_due(optimizer, done, curve)
    if start < steps:
        saved.save(optimizer, steps, curve)
    return optimizer.heads()


def train_and_score(
    backbone: Backbone,
    images: Images,
    training: ProbeTraining,
    test: Features,
    seed: int,
    folder: Path,
    head: int = 0,
    shared: Path | None = None,
) -> Predictions:
    """Train heads, and score test with the final weights of one of them.

    These weights are stored in the folder, for tasks that use the classifier; the details name
    them. The details also hold top-1 after each pass and the best of these, which is not the
    result, and the shares of a network's heads. shared: a folder where cells that train the same
    heads share their state.
    """
    curve = EpochAccuracies(test)
    file = _file(backbone, images, training, seed)
    with _place(folder, shared or folder, file) as place:
        heads = train_heads(backbone, images, training, seed, place, curve).only(head)
    scores = heads.scores(test.features)[0]
    if not bool(scores.isfinite().all()):
        raise NotFiniteError(
            f"the probe of rate {training.learning_rates[head]} diverged; no result is written"
        )
    kept = {"weights": save_classifier(folder, heads)}
    passes = [found[head] for found in curve.top1]
    best = max(range(len(passes)), key=lambda index: passes[index])
    details: dict[str, object] = {
        "top1_after_each_pass": passes,
        "best_top1": passes[best],
        "best_pass": best + 1,
        "crops": CROPS,
    }
    details |= _share_details(backbone, heads, test)
    return Predictions(scores, test.labels, details | kept)


def _share_details(backbone: Backbone, classifier: Heads, test: Features) -> dict[str, object]:
    """Return the shares of the network's heads in correct predictions, if it has several."""
    num_heads = network_and_heads(backbone.arch)[1]
    shares = head_shares(classifier, test.features, test.labels, num_heads) if num_heads else []
    return {"head_shares": shares, "head_entropy_bits": entropy_bits(shares)} if shares else {}


@contextmanager
def _place(own: Path, shared: Path, file: str) -> Iterator[Path]:
    """Yield the folder to train in: the shared one, locked, or the cell's own.

    The cell's own is used if a training has begun there, or if another process trains in the shared
    one. Waiting instead would leave a GPU idle.
    """
    if own == shared or (own / file).exists():
        yield own
        return
    place = shared / file.removesuffix(".pt")
    with ExitStack() as stack:
        try:
            stack.enter_context(lock_folder(place))
        except BusyError:
            place = own
        yield place


def weights_of(network: nn.Module) -> dict[str, Tensor]:
    """Return a copy of all weights and buffers."""
    return {name: tensor.clone() for name, tensor in network.state_dict().items()}


def require_frozen(network: nn.Module, before: dict[str, Tensor]) -> None:
    """Raise NotFrozenError if a weight or buffer has changed, or a module is in training mode."""
    now = network.state_dict()
    changed = [name for name, tensor in before.items() if not torch.equal(now[name], tensor)]
    learning = [name for name, module in network.named_modules() if module.training]
    if changed or learning:
        raise NotFrozenError(
            f"{len(changed)} of {len(now)} tensors of the frozen backbone have changed while the "
            f"head was trained {changed[:3]}, {len(learning)} modules are in training mode "
            f"{learning[:3]}; no result is written"
        )


def _require_finite(losses: Tensor, step: int) -> None:
    if not bool(losses.isfinite().any()):
        raise NotFiniteError(
            f"step {step}: the loss of all {len(losses)} heads is infinite or not a number; "
            "no result is written. Check the backbone's features, or lower the rates"
        )


def _file(backbone: Backbone, images: Images, training: ProbeTraining, seed: int) -> str:
    parts = [backbone.sha256, backbone.precision, images.fingerprint, asdict(training), seed, CROPS]
    return f"heads-{content_hash(parts, 16)}.pt"


class SavedTraining:
    """State of the training on disk, replaced as a whole at every save."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.last = time.monotonic()
        path.parent.mkdir(parents=True, exist_ok=True)

    def restore(self, optimizer: HeadOptimizer, curve: EpochAccuracies | None = None) -> int:
        """Load the saved state, if any; return its number of finished steps.

        A state that a dying machine has torn counts as none: the training starts anew.
        """
        if not self.path.exists():
            return 0
        content = io.BytesIO(self.path.read_bytes())  # an unreadable disk is another error
        try:
            state = torch.load(content, map_location="cpu", weights_only=True)
        except TORN as error:
            reason = (str(error).splitlines() or [type(error).__name__])[0]
            print_line("train", f"{self.path} is torn ({reason}); the training starts anew")
            return 0
        optimizer.load(state)
        if curve is not None:
            curve.top1 = state["curve"]
        return int(state["step"])

    def save_when_due(
        self, optimizer: HeadOptimizer, step: int, curve: EpochAccuracies | None
    ) -> None:
        """Save every SAVE_EVERY_S seconds; after a signal, save and raise Stopped."""
        if stop.is_requested() or time.monotonic() - self.last > SAVE_EVERY_S:
            self.save(optimizer, step, curve)
            stop.exit_if_requested()

    def save(
        self, optimizer: HeadOptimizer, step: int, curve: EpochAccuracies | None = None
    ) -> None:
        """Save the state after `step` steps."""
        content = io.BytesIO()
        state = {**optimizer.state(), "step": step, "curve": curve.top1 if curve else []}
        torch.save(state, content)
        write_whole(self.path, content.getvalue(), "--runs")
        self.last = time.monotonic()
