"""Train linear heads on a frozen backbone, several at once.

The forward pass dominates the cost. Heads that differ only in learning rate and decay are rows of
one matrix. Probes that differ in batch size, optimizer or length read the same stream of features,
since crops depend only on the seed and the position in the stream. Each head ends with the weights
that a separate training would give it.
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
"""Images per forward pass if it divides the batch size.

It divides all published batch sizes, so a probe's features are rounded equally in shared and
separate passes."""


class NotFrozenError(SuiteError, RuntimeError):
    """The frozen backbone has changed."""


class Pass:
    """Probes that read one stream of random crops.

    One file stores their states. It is named after the stream, so a training that is requested
    later is added to it. The stream is read until the requested training ends. The other trainings
    continue later.
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
        """Set up a probe for each training.

        All trainings need the same crop size and type of labels. folder: contains the file. tested:
        features to report accuracies on after each epoch.
        """
        self.backbone, self.images, self.seed = backbone, images, seed
        first, target_device = trainings[0], device()
        crop_settings = [first.crop_px, first.labels, asdict(backbone.input)]
        fields = [
            backbone.sha256,
            backbone.precision,
            images.fingerprint,
            crop_settings,
            seed,
            CROPS,
        ]
        self.file = folder / f"pass-{content_hash(fields, 16)}.stage"
        self.states: dict[str, Any] = {}
        """State of each training that has read the stream, by hash."""
        self.probes: dict[str, RunningProbe] = {}
        num_classes = QUARTER_TURNS if first.labels == "rotations" else len(images.class_names)
        for training in trainings:
            rates, std = training.learning_rates, training.weight_std
            heads = new_heads(rates, num_classes, backbone.feature_dim, std, seed)
            probe = RunningProbe(training, len(images), heads, target_device, tested)
            self.probes[training_hash(backbone, images, training, seed)] = probe

    def run(self, training: ProbeTraining) -> RunningProbe:
        """Finish one of the trainings and return its probe.

        If the call is interrupted and repeated, it ends with the same weights. A head with a too
        large learning rate may diverge: its scores are not finite. NotFiniteError if all heads
        diverge. If all heads of another training diverge, only that training ends. NotFrozenError
        if the backbone has changed since the first batch.
        """
        probe = self.probes[training_hash(self.backbone, self.images, training, self.seed)]
        note = f"waiting for another process that trains on these crops: {self.file}"
        lock = self.file.with_suffix(".lock")
        with wait_for_lock(lock, "--runs", lambda: print_line("train", note)):
            self._load()
            if not probe.finished:
                with unchanged(self.images, self):
                    self._read_stream(probe)
        return probe

    def _load(self) -> None:
        """Restore the saved states, if any."""
        states = load_stage(self.file)
        if states is None and self.file.exists():
            print_line("train", f"{self.file} is damaged; its trainings start again")
        old_file = self.file.parent.parent / "heads" / self.file.stem.replace("pass-", "stream-")
        if states is None and old_file.exists():
            print_line("train", f"{old_file} is of an earlier version and is not read. Delete it")
        self.states = states or {}
        for key in self.probes.keys() & self.states.keys():
            self.probes[key].load(self.states[key])

    def _read_stream(self, requested: RunningProbe) -> None:
        """Pass features of crops to all probes until `requested` is finished."""
        network = frozen_network(self.backbone)
        weights = weights_of(network)
        # a probe that is more than a batch behind would delay the requested one
        training = [
            probe
            for probe in self.probes.values()
            if not probe.finished
            and probe.position > requested.position - probe.training.batch_size
        ]
        sizes = [probe.training.batch_size for probe in training]
        chunk = min(size if size % FORWARD_IMAGES else FORWARD_IMAGES for size in sizes)
        # a resumed run has the same chunks as an uninterrupted one
        first = min(probe.position for probe in training) // chunk
        chunks = range(first, math.ceil(requested.end / chunk))
        input_format = self.backbone.input
        batches = crop_batches(
            self.images, requested.training, self.seed, input_format, chunk, chunks
        )

        def save() -> None:
            # a finished training is never checked again when it is loaded
            require_frozen(network, weights)
            for key, probe in self.probes.items():
                if probe in training:
                    self.states[key] = probe.state()
            save_stage(self.file, self.states)

        check_at, saved_s = requested.step + requested.ends[0], time.monotonic()
        label = _label(requested.training, len(training) - 1)
        with progress("train", label, requested.ends[-1], "steps", done=requested.step) as counter:
            for number, (pixels, labels) in enumerate(batches, first):
                features, step = forward(network, pixels), requested.step
                for probe in list(training):
                    try:
                        probe.receive(number * chunk, features, labels)
                    except NotFiniteError as error:
                        training.remove(probe)
                        if probe is requested:
                            save()  # the other trainings resume from here
                            raise
                        diverged = (
                            f"the probe with {_settings_text(probe.training)} on the same crops"
                        )
                        print_line("train", f"{diverged} is skipped: {error}")
                counter.add(requested.step - step)
                if step < check_at <= requested.step:
                    require_frozen(network, weights)
                if stop.is_requested() or time.monotonic() - saved_s > SAVE_EVERY_S:
                    save()
                    saved_s = time.monotonic()
                    stop.exit_if_requested()
        save()

    def discard(self) -> None:
        """Delete the states."""
        self.file.unlink(missing_ok=True)


def training_hash(backbone: Encoder, images: Images, training: ProbeTraining, seed: int) -> str:
    """Return a hash of everything that determines the weights."""
    fields = [
        backbone.sha256,
        backbone.precision,
        images.fingerprint,
        asdict(training),
        seed,
        CROPS,
    ]
    return content_hash(fields, 16)


def train_heads(
    backbone: Encoder, images: Images, training: ProbeTraining, seed: int, folder: Path
) -> Heads:
    """Train a head per learning rate on random crops; see `Pass.run`."""
    return Pass(backbone, images, (training,), seed, folder).run(training).optimizer.heads()


def _label(training: ProbeTraining, num_others: int) -> str:
    num_rates = len(training.learning_rates)
    label = f"{num_rates} learning rate" if num_rates == 1 else f"{num_rates} learning rates"
    if num_others:
        label += f" (and {num_others} probes on the same crops)"
    return label


def _settings_text(training: ProbeTraining) -> str:
    rates = ", ".join(f"{rate:g}" for rate in training.learning_rates)
    return f"learning rates {rates}, batch size {training.batch_size} and {training.optimizer}"


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
    """Train heads, and score test with one of them.

    head: index of this head. Its weights are stored in `folder` for tasks that use the classifier,
    and the details name the file. The details also contain the contributions of a network's heads,
    and top-1 after each epoch with its maximum, which is not the result. Top-1 is left out if test
    was replaced during the training.

    passes: folder of the passes that evaluations share. peers: the trainings of other evaluations
    that read the same crops, which are trained at the same time.
    """
    shared_pass = Pass(backbone, images, (training, *peers), seed, passes or folder, test)
    probe = shared_pass.run(training)
    rows = slice(head, head + 1)
    trained = probe.optimizer.heads()
    heads = Heads(trained.weight[rows], trained.bias[rows])
    scores = heads.scores(test.features)[0]
    if not bool(scores.isfinite().all()):
        raise NotFiniteError(
            f"the probe diverged at learning rate {training.learning_rates[head]}; "
            "no result is written"
        )
    details: dict[str, Any] = {"weights": save_classifier(folder, heads), "crops": CROPS}
    accuracies, num_epochs = [epoch[head] for epoch in probe.curve], len(probe.ends)
    if len(accuracies) == num_epochs:
        best = max(range(num_epochs), key=lambda index: accuracies[index])
        details |= {
            "top1_after_each_pass": accuracies,
            "best_top1": accuracies[best],
            "best_pass": best + 1,
        }
    else:
        print_line(
            "train",
            f"top-1 was computed in {len(accuracies)} of {num_epochs} epochs, since the test "
            "features changed during the training; the record has no top-1 curve",
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


def require_frozen(network: nn.Module, expected: dict[str, Tensor]) -> None:
    """Raise NotFrozenError if weights, buffers or modes have changed."""
    state = network.state_dict()
    changed = [name for name, tensor in expected.items() if not torch.equal(state[name], tensor)]
    in_training = [name for name, module in network.named_modules() if module.training]
    if changed or in_training:
        raise NotFrozenError(
            f"{len(changed)} of {len(state)} tensors of the frozen backbone changed during the "
            f"training {changed[:3]}, {len(in_training)} modules are in training mode "
            f"{in_training[:3]}; no result is written"
        )
