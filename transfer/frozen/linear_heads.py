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

from pretrain.running import stop
from pretrain.running.atomic_files import content_hash, load_stage, save_stage
from pretrain.running.console import print_line, progress
from pretrain.running.errors import NotFiniteError
from pretrain.running.lock import wait_for_lock
from transfer.datasets.images import Images, unchanged
from transfer.encoders.encoder import Encoder
from transfer.frozen.classifier import Heads, class_results, save_classifier
from transfer.frozen.crops import CROPS, crop_batches
from transfer.frozen.feature_cache import Features, Predictions, arithmetic
from transfer.frozen.finite import require_converged
from transfer.frozen.head_shares import share_details
from transfer.frozen.network import device, forward, frozen_network
from transfer.frozen.probe_training import ProbeTraining
from transfer.frozen.running_probe import RunningProbe, new_heads
from transfer.frozen.transforms import QUARTER_TURNS

SAVE_EVERY_S = 120
ROTATION_NAMES = tuple(f"turned by {90 * quarters}°" for quarters in range(QUARTER_TURNS))
FORWARD_IMAGES = 256
"""Images per forward pass if it divides the batch size.

It divides all published batch sizes, so a probe's features are rounded equally in shared and
separate passes."""


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
        first = trainings[0]
        crop_settings = [first.crop_px, first.labels, asdict(backbone.input)]
        name = content_hash(
            [backbone.sha256, arithmetic(backbone), images.fingerprint, crop_settings, seed, CROPS],
            16,
        )
        self.file = folder / f"pass-{name}.stage"
        self.states: dict[str, Any] = {}
        """State of each training that has read the stream, by hash."""
        self.probes: dict[str, RunningProbe] = {}
        num_classes = QUARTER_TURNS if first.labels == "rotations" else len(images.class_names)
        for training in trainings:
            rates, std = training.learning_rates, training.weight_std
            heads = new_heads(rates, num_classes, backbone.feature_dim, std, seed)
            probe = RunningProbe(training, len(images), heads, device(), tested)
            self.probes[training_hash(backbone, images, training, seed)] = probe

    def run(self, training: ProbeTraining) -> RunningProbe:
        """Finish one of the trainings and return its probe.

        If the call is interrupted and repeated, it ends with the same weights. A head with a too
        large learning rate may diverge: its scores are not finite. If all heads of another training
        diverge, only that training ends.

        Raises NotFiniteError if all heads of this training diverge.
        """
        probe = self.probes[training_hash(self.backbone, self.images, training, self.seed)]
        note = f"waiting for another process that trains on these crops: {self.file}"
        lock = self.file.with_suffix(".lock")
        with wait_for_lock(lock, "--runs", lambda: print_line("train", note)):
            states = load_stage(self.file)
            if states is None and self.file.exists():
                print_line("train", f"{self.file} is damaged; its trainings start again")
            self.states = states or {}
            for key in self.probes.keys() & self.states.keys():
                self.probes[key].load(self.states[key])
            if not probe.finished:
                with unchanged(self.images, self):
                    self._read_stream(probe)
        return probe

    def _read_stream(self, requested: RunningProbe) -> None:
        """Pass features of crops to all probes until `requested` is finished."""
        network = frozen_network(self.backbone)
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
        batches = crop_batches(
            self.images, requested.training, self.seed, self.backbone.input, chunk, chunks
        )

        def save() -> None:
            for key, probe in self.probes.items():
                if probe in training:
                    self.states[key] = probe.state()
            save_stage(self.file, self.states)

        saved_s = time.monotonic()
        num_heads = sum(len(probe.training.learning_rates) for probe in training)
        label, num_steps = f"linear classifiers: {num_heads}", requested.ends[-1]
        with progress("train", label, num_steps, "steps", done=requested.step) as counter:
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
                        rates = probe.training.learning_rates
                        print_line("train", f"the probe with learning rates {rates}: {error}")
                counter.add(requested.step - step)
                if stop.is_requested() or time.monotonic() - saved_s > SAVE_EVERY_S:
                    save()
                    saved_s = time.monotonic()
                    stop.exit_if_requested()
        save()

    def discard(self) -> None:
        """Delete the states."""
        self.file.unlink(missing_ok=True)


def training_hash(backbone: Encoder, images: Images, training: ProbeTraining, seed: int) -> str:
    """Return a hash of everything that determines the trained weights."""
    settings = asdict(training)
    fields = [backbone.sha256, arithmetic(backbone), images.fingerprint, settings, seed, CROPS]
    return content_hash(fields, 16)


def train_heads(
    backbone: Encoder, images: Images, training: ProbeTraining, seed: int, folder: Path
) -> Heads:
    """Train a head per learning rate on random crops; see `Pass.run`."""
    return Pass(backbone, images, (training,), seed, folder).run(training).optimizer.heads()


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
    require_converged(scores, training.learning_rates[head])
    details: dict[str, Any] = {"weights": save_classifier(folder, heads), "crops": CROPS}
    accuracies = [epoch[head] for epoch in probe.curve]
    if len(accuracies) == len(probe.ends):
        details |= {
            "top1_after_each_pass": accuracies,
            "best_top1": max(accuracies),
            "best_pass": accuracies.index(max(accuracies)) + 1,
        }
    if backbone.num_heads:
        details |= share_details(heads, test.features, test.labels, backbone.num_heads)
    names, repeats = images.class_names, 1
    if training.labels == "rotations":
        names, repeats = ROTATION_NAMES, QUARTER_TURNS
    details |= class_results(scores, test.labels, names, repeats=repeats)
    return Predictions(scores, test.labels, details)
