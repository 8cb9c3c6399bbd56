"""Training of linear heads on a frozen backbone, with several probes and rates at once.

The forward pass dominates the cost. Heads that differ only in learning rate and decay are rows of
one matrix. Probes that differ in batch size, optimizer or length read the same stream of features,
since crops depend only on the seed and the place in it. Each head ends with the weights that a
separate training would give it.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pretrain.running import stop
from pretrain.running.atomic_files import content_hash, load_stage, save_stage
from pretrain.running.console import print_line, progress
from pretrain.running.errors import NotFiniteError, SuiteError
from pretrain.running.lock import wait_for_lock
from transfer.datasets.images import Images, unchanged
from transfer.encoders.encoder import Encoder
from transfer.frozen.classifier import Heads, class_results, save_classifier
from transfer.frozen.crops import CROPS, crop_batches
from transfer.frozen.feature_cache import Features, Predictions
from transfer.frozen.head_shares import share_details
from transfer.frozen.network import device, forward, frozen_network
from transfer.frozen.probe_training import ProbeTraining
from transfer.frozen.running_probe import RunningProbe, new_heads
from transfer.frozen.transforms import QUARTER_TURNS

SAVE_EVERY_S = 120
FORWARD_IMAGES = 256
"""Images of a forward pass where the batch size is a multiple of it. All published batches are, so
a probe's features are rounded alike whether it is alone in its stream or not."""


class NotFrozenError(SuiteError, RuntimeError):
    """Error for a frozen backbone that has changed."""


class Pass:
    """Probes that read one stream of random crops; one file holds their states.

    The stream names the file, so a training that is requested later is added to it. The stream is
    read as far as the requested training needs; the others are trained along, and continue later.
    """

    def __init__(
        self,
        backbone: Encoder,
        images: Images,
        trainings: Sequence[ProbeTraining],
        seed: int,
        folder: Path,
        tested: Features | None = None,
    ) -> None:
        """Set up a probe for each training; all have crops of one size and one kind of labels.

        folder: that of the file. tested: features whose accuracies after each pass are reported.
        """
        self.backbone, self.images, self.seed = backbone, images, seed
        first, where = trainings[0], device()
        view = [first.crop_px, first.labels, asdict(backbone.input)]
        parts = [backbone.sha256, backbone.precision, images.fingerprint, view, seed, CROPS]
        self.file = folder / f"pass-{content_hash(parts, 16)}.stage"
        self.states: dict[str, Any] = {}
        """State of each training that has read the stream, by its hash."""
        self.probes: dict[str, RunningProbe] = {}
        num_classes = QUARTER_TURNS if first.labels == "rotations" else len(images.class_names)
        for training in trainings:
            rates, std = training.learning_rates, training.weight_std
            heads = new_heads(rates, num_classes, backbone.feature_dim, std, seed)
            probe = RunningProbe(training, len(images), heads, where, tested)
            self.probes[training_hash(backbone, images, training, seed)] = probe

    def run(self, training: ProbeTraining) -> RunningProbe:
        """Return the finished probe of one of the trainings.

        An interrupted call, repeated with the same arguments, ends with the same weights. A head
        whose rate is too large may diverge, with scores that are not finite; NotFiniteError if all
        do. If all heads of another training diverge, that one alone ends. NotFrozenError if a bit
        of the backbone has changed since the first batch.
        """
        own = self.probes[training_hash(self.backbone, self.images, training, self.seed)]
        note = f"waits for the pass of another process: {self.file}"
        lock = self.file.with_suffix(".lock")
        with wait_for_lock(lock, "--runs", lambda: print_line("train", note)):
            self._load()
            if not own.finished:
                with unchanged(self.images, self):
                    self._read_stream(own)
        return own

    def _load(self) -> None:
        """Restore the saved states, if any."""
        states = load_stage(self.file)
        if states is None and self.file.exists():
            print_line("train", f"{self.file} is damaged: its trainings start again")
        old = self.file.parent.parent / "heads" / self.file.stem.replace("pass-", "stream-")
        if states is None and old.exists():
            print_line("train", f"{old} is of an earlier version and not read; delete it")
        self.states = states or {}
        for key in self.probes.keys() & self.states.keys():
            self.probes[key].load(self.states[key])

    def _read_stream(self, own: RunningProbe) -> None:
        """Give the features of the crops to all probes until this one is finished."""
        network = frozen_network(self.backbone)
        before = weights_of(network)
        # a probe that is more than a batch behind would delay this one
        training = [
            probe
            for probe in self.probes.values()
            if not probe.finished and probe.place > own.place - probe.training.batch_size
        ]
        sizes = [probe.training.batch_size for probe in training]
        chunk = min(size if size % FORWARD_IMAGES else FORWARD_IMAGES for size in sizes)
        # the chunks of an interrupted run are those of an undisturbed one
        first = min(probe.place for probe in training) // chunk
        chunks = range(first, math.ceil(own.end / chunk))
        form = self.backbone.input
        batches = crop_batches(self.images, own.training, self.seed, form, chunk, chunks)

        def save() -> None:
            # a finished training is only loaded, never checked again
            require_frozen(network, before)
            for key, probe in self.probes.items():
                if probe in training:
                    self.states[key] = probe.state()
            save_stage(self.file, self.states)

        check_at, saved_s = own.step + own.ends[0], time.monotonic()
        label = _label(own.training, len(training) - 1)
        with progress("train", label, own.ends[-1], "steps", done=own.step) as counter:
            for number, (pixels, labels) in enumerate(batches, first):
                features, step = forward(network, pixels), own.step
                for probe in list(training):
                    try:
                        probe.receive(number * chunk, features, labels)
                    except NotFiniteError as error:
                        training.remove(probe)
                        if probe is own:
                            save()  # the others need not start again
                            raise
                        diverged = f"the probe of {_described(probe.training)} on the same crops"
                        print_line("train", f"{diverged} is left out: {error}")
                counter.add(own.step - step)
                if step < check_at <= own.step:
                    require_frozen(network, before)
                if stop.is_requested() or time.monotonic() - saved_s > SAVE_EVERY_S:
                    save()
                    saved_s = time.monotonic()
                    stop.exit_if_requested()
        save()

    def discard(self) -> None:
        """Delete the states."""
        self.file.unlink(missing_ok=True)


def training_hash(backbone: Encoder, images: Images, training: ProbeTraining, seed: int) -> str:
    """Return a hash of all that determines the weights."""
    parts = [backbone.sha256, backbone.precision, images.fingerprint, asdict(training), seed, CROPS]
    return content_hash(parts, 16)


def train_heads(
    backbone: Encoder, images: Images, training: ProbeTraining, seed: int, folder: Path
) -> Heads:
    """Train a head per learning rate on random crops of the images; see `Pass.run`."""
    return Pass(backbone, images, (training,), seed, folder).run(training).optimizer.heads()


def _label(training: ProbeTraining, num_others: int) -> str:
    rates = len(training.learning_rates)
    others = f" (and {num_others} probes on the same crops)" if num_others else ""
    return f"{rates} rate{'s' * (rates > 1)}{others}"


def _described(training: ProbeTraining) -> str:
    rates = ", ".join(f"{rate:g}" for rate in training.learning_rates)
    return f"rates {rates}, batch size {training.batch_size} and {training.optimizer}"


def train_and_score(
    backbone: Encoder,
    images: Images,
    training: ProbeTraining,
    test: Features,
    seed: int,
    folder: Path,
    head: int = 0,
    passes: Path | None = None,
    peers: Sequence[ProbeTraining] = (),
) -> Predictions:
    """Train heads, and score test with the final weights of one of them.

    These weights are stored in the folder, for tasks that use the classifier; the details name
    them. The details also hold top-1 after each pass and the best of these, which is not the
    result, unless test was replaced during the training, and the shares of a network's heads.
    passes: a folder where cells that read the same crops share their pass; peers: the trainings of
    these cells, which are trained along.
    """
    shared = Pass(backbone, images, (training, *peers), seed, passes or folder, test)
    probe = shared.run(training)
    own = slice(head, head + 1)
    trained = probe.optimizer.heads()
    heads = Heads(trained.weight[own], trained.bias[own])
    scores = heads.scores(test.features)[0]
    if not bool(scores.isfinite().all()):
        raise NotFiniteError(
            f"the probe of rate {training.learning_rates[head]} diverged; no result is written"
        )
    details: dict[str, Any] = {"weights": save_classifier(folder, heads), "crops": CROPS}
    accuracies, number = [one[head] for one in probe.curve], len(probe.ends)
    if len(accuracies) == number:
        best = max(range(number), key=lambda index: accuracies[index])
        details |= {
            "top1_after_each_pass": accuracies,
            "best_top1": accuracies[best],
            "best_pass": best + 1,
        }
    else:
        print_line(
            "train",
            f"top-1 is known for {len(accuracies)} of {number} passes, the others had other test "
            "features; the record leaves the curve out",
        )
    if backbone.num_heads:
        details |= share_details(heads, test.features, test.labels, backbone.num_heads)
    names, repeats = images.class_names, 1
    if training.labels == "rotations":
        names = tuple(f"turned by {90 * quarter}°" for quarter in range(QUARTER_TURNS))
        repeats = QUARTER_TURNS
    details |= class_results(scores, test.labels, names, repeats=repeats)
    return Predictions(scores, test.labels, details)


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
