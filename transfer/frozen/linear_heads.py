"""Train linear heads on frozen backbones, several at once.

Decoding or the forward pass dominates the cost. Heads that differ only in learning rate and decay
are rows of one matrix. Probes that differ in batch size, optimizer or length read the same stream
of features, and several backbones the same stream of crops, since crops depend only on the seed and
the position in the stream. Each head ends with the weights that a separate training would give it.
"""

import math
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from pretrain.running import stop
from pretrain.running.atomic_files import content_hash, load_stage, save_stage
from pretrain.running.console import print_line, progress
from pretrain.running.errors import NotFiniteError
from pretrain.running.lock import wait_for_lock
from transfer.datasets.images import Images, unchanged
from transfer.encoders.encoder import Encoder
from transfer.frozen.classifier import Heads, class_results, save_classifier
from transfer.frozen.crops import CROPS_VERSION, crop_batches
from transfer.frozen.feature_cache import Features, Predictions, arithmetic
from transfer.frozen.finite import require_converged
from transfer.frozen.head_shares import share_details
from transfer.frozen.network import device, forward, frozen_network
from transfer.frozen.probe_training import ProbeTraining
from transfer.frozen.running_probe import RunningProbe, new_heads
from transfer.frozen.transforms import QUARTER_TURNS, Normalization

SAVE_EVERY_S = 120
ROTATION_NAMES = tuple(f"turned by {90 * quarters}°" for quarters in range(QUARTER_TURNS))
FORWARD_IMAGES = 256
"""Images per forward pass if it divides the batch size.

It divides all published batch sizes, so a probe's features are rounded equally in shared and
separate passes."""


class Pass:
    """A training on a stream of random crops, and the other probes that read the stream.

    One file stores their states. It is named after the stream, so a training that is requested
    later is added to it. The stream is read until the requested training ends. The other trainings
    continue later.
    """

    def __init__(
        self,
        backbone: Encoder,
        images: Images,
        training: ProbeTraining,
        seed: int,
        folder: Path,
        tested: Features | None = None,
        peers: Sequence[ProbeTraining] = (),
    ) -> None:
        """Set up a probe for each training.

        All trainings need the same crop size and type of labels. folder: contains the file. tested:
        features to report accuracies on after each epoch. peers: the other trainings.
        """
        self.backbone, self.images, self.training, self.seed = backbone, images, training, seed
        crop_settings = [training.crop_px, training.labels, asdict(backbone.input)]
        name = content_hash(
            [
                backbone.sha256,
                arithmetic(backbone),
                images.fingerprint,
                crop_settings,
                seed,
                CROPS_VERSION,
            ],
            16,
        )
        self.file = folder / f"pass-{name}.stage"
        self.states: dict[str, Any] = {}
        """State of each training that has read the stream, by hash."""
        self.probes: dict[str, RunningProbe] = {}
        self.reading: list[RunningProbe] = []
        """Unfinished probes that read the stream now."""
        self.network: nn.Module | None = None
        """The frozen network, while the stream is read."""
        self.normalize = Normalization(backbone.input, device())
        rotates = training.labels == "rotations"
        num_classes = QUARTER_TURNS if rotates else len(images.class_names)
        for each in (training, *peers):
            rates, std = each.learning_rates, each.weight_std
            heads = new_heads(rates, num_classes, backbone.feature_dim, std, seed)
            probe = RunningProbe(each, len(images), heads, device(), tested)
            self.probes[training_hash(backbone, images, each, seed)] = probe
        self.requested = self.probes[training_hash(backbone, images, training, seed)]

    @property
    def heads(self) -> Heads:
        """The heads of the training, on the CPU."""
        return self.requested.optimizer.heads()

    @property
    def position(self) -> int:
        """Number of images of the stream that all of its probes have used."""
        return min(probe.position for probe in self.reading)

    def run(self) -> Heads:
        """Finish the training and return its heads; see `train_passes`.

        Raises NotFiniteError if all heads of the training diverge.
        """
        train_passes([self])
        return self.heads

    def load(self) -> None:
        """Restore the states of all probes."""
        states = load_stage(self.file)
        if states is None and self.file.exists():
            print_line("train", f"{self.file} is damaged; its trainings start again")
        self.states = states or {}
        for key in self.probes.keys() & self.states.keys():
            self.probes[key].load(self.states[key])
        # a probe that is more than a batch behind would delay the requested one
        self.reading = [
            probe
            for probe in self.probes.values()
            if not probe.finished
            and probe.position > self.requested.position - probe.training.batch_size
        ]

    def save(self) -> None:
        """Store the states of all probes."""
        for key, probe in self.probes.items():
            if probe in self.reading:
                self.states[key] = probe.state()
        save_stage(self.file, self.states)

    def receive(self, position: int, crops: Tensor, labels: Tensor) -> None:
        """Train on the crops from a position on.

        crops (n, 3, H, W) uint8, labels (n,). Raises NotFiniteError if all heads of the training
        diverge.
        """
        if position + len(labels) <= self.position:
            return
        if self.network is None:
            self.network = frozen_network(self.backbone)
        features = forward(self.network, self.normalize(crops))
        for probe in list(self.reading):
            try:
                probe.receive(position, features, labels)
            except NotFiniteError as error:
                self.reading.remove(probe)
                if probe is self.requested:
                    self.save()  # the other trainings resume from here
                    raise
                rates = probe.training.learning_rates
                print_line("train", f"the probe with learning rates {rates}: {error}")

    def free(self) -> None:
        """Free the memory of the network."""
        self.network = None

    def discard(self) -> None:
        """Delete the states."""
        self.file.unlink(missing_ok=True)


def train_passes(passes: Sequence[Pass]) -> dict[Pass, Exception]:
    """Finish the training of each pass on one stream of crops.

    All passes have the same images, seed, crop size and type of labels; their backbones differ. If
    the call is interrupted and repeated, it ends with the same weights. A head with a too large
    learning rate may diverge: its scores are not finite. If all heads of another training of a pass
    diverge, only that training ends.

    A single pass raises its errors. If one of several fails, for example by an out-of-memory error,
    the others go on. The errors of failed passes are returned.
    """
    with ExitStack() as stack:
        for each in sorted(passes, key=lambda item: item.file):  # equal order prevents deadlocks
            note = f"waiting for another process that trains on these crops: {each.file}"
            lock = wait_for_lock(
                each.file.with_suffix(".lock"), "--runs", partial(print_line, "train", note)
            )
            stack.enter_context(lock)
            each.load()
        unfinished = [each for each in passes if not each.requested.finished]
        if not unfinished:
            return {}
        with unchanged(unfinished[0].images, *unfinished):
            return _read_stream(unfinished, is_single=len(passes) == 1)


def _read_stream(passes: list[Pass], *, is_single: bool) -> dict[Pass, Exception]:
    """Pass the crops to all passes until their trainings are finished; return the errors."""
    first_pass, errors = passes[0], dict[Pass, Exception]()
    probes = [probe for each in passes for probe in each.reading]
    sizes = [probe.training.batch_size for probe in probes]
    chunk = min(size if size % FORWARD_IMAGES else FORWARD_IMAGES for size in sizes)
    # a resumed run has the same chunks as an uninterrupted one
    first = min(each.position for each in passes) // chunk
    chunks = range(first, math.ceil(max(each.requested.end for each in passes) / chunk))
    training, saved_s = first_pass.training, time.monotonic()
    batches = crop_batches(first_pass.images, training, first_pass.seed, chunk, chunks)
    label = f"linear classifiers: {sum(len(probe.training.learning_rates) for probe in probes)}"
    if len(passes) > 1:
        label += f" of {len(passes)} backbones"
    size, num_steps = training.batch_size, first_pass.requested.ends[-1]
    done = first * chunk // size
    with progress("train", label, num_steps, "steps", done=done) as counter:
        for number, (crops, labels) in enumerate(batches, first):
            for each in list(passes):
                try:
                    each.receive(number * chunk, crops, labels)
                except Exception as error:  # such as running out of memory
                    if is_single:
                        raise
                    # a traceback would keep the network and its activations in memory
                    errors[each] = error.with_traceback(None)
                if each.requested.finished:
                    each.save()
                if each.requested.finished or each in errors:
                    each.free()
                    passes.remove(each)
            counter.add((number + 1) * chunk // size - number * chunk // size)
            if not passes:
                break
            if stop.is_requested() or time.monotonic() - saved_s > SAVE_EVERY_S:
                for each in passes:
                    each.save()
                saved_s = time.monotonic()
                stop.exit_if_requested()
    return errors


def training_hash(backbone: Encoder, images: Images, training: ProbeTraining, seed: int) -> str:
    """Return a hash of everything that determines the trained weights."""
    settings = asdict(training)
    fields = [
        backbone.sha256,
        arithmetic(backbone),
        images.fingerprint,
        settings,
        seed,
        CROPS_VERSION,
    ]
    return content_hash(fields, 16)


def train_and_score(shared_pass: Pass, test: Features, folder: Path, head: int = 0) -> Predictions:
    """Finish the training of a pass, and score test with one of its heads.

    head: index of this head. Its weights are stored in `folder` for tasks that use the classifier,
    and the details name the file. The details also contain the contributions of a network's heads,
    and top-1 after each epoch with its maximum, which is not the result. Top-1 is left out if test
    was replaced during the training.
    """
    trained, probe = shared_pass.run(), shared_pass.requested
    backbone, training = shared_pass.backbone, shared_pass.training
    rows = slice(head, head + 1)
    heads = Heads(trained.weight[rows], trained.bias[rows])
    scores = heads.scores(test.features)[0]
    require_converged(scores, training.learning_rates[head])
    details: dict[str, Any] = {"weights": save_classifier(folder, heads), "crops": CROPS_VERSION}
    accuracies = [epoch[head] for epoch in probe.curve]
    if len(accuracies) == len(probe.ends):
        details |= {
            "top1_after_each_pass": accuracies,
            "best_top1": max(accuracies),
            "best_pass": accuracies.index(max(accuracies)) + 1,
        }
    if backbone.num_heads:
        details |= share_details(heads, test.features, test.labels, backbone.num_heads)
    names, repeats = shared_pass.images.class_names, 1
    if training.labels == "rotations":
        names, repeats = ROTATION_NAMES, QUARTER_TURNS
    details |= class_results(scores, test.labels, names, repeats=repeats)
    return Predictions(scores, test.labels, details)
