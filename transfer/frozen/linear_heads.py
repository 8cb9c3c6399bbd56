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
from pretrain.running.atomic_files import content_hash
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


def train_heads(
    backbone: Encoder,
    images: Images,
    training: ProbeTraining,
    seed: int,
    folder: Path,
    peers: Sequence[ProbeTraining] = (),
) -> Heads:
    """Train a head per learning rate on random crops of the images; the state is in the folder.

    An interrupted call, repeated with the same arguments, ends with the same weights. A head whose
    rate is too large may diverge, with scores that are not finite; NotFiniteError if all diverge.
    NotFrozenError if a bit of the backbone has changed since the first pass.
    peers: trainings that go along on the same crops, as far as this one needs them. Their state is
    in the folder too, where a later call for one of them continues it. Their divergence ends
    nothing.
    """
    return _train(backbone, images, training, seed, folder, peers).optimizer.heads()


def _train(
    backbone: Encoder,
    images: Images,
    training: ProbeTraining,
    seed: int,
    folder: Path,
    peers: Sequence[ProbeTraining],
    tested: Features | None = None,
) -> RunningProbe:
    """Return the trained probe, with its accuracies on the tested features after each pass."""
    network = frozen_network(backbone)
    where = device()

    def start(one: ProbeTraining) -> RunningProbe:
        num_classes = QUARTER_TURNS if one.labels == "rotations" else len(images.class_names)
        width, std = backbone.feature_dim, one.weight_std
        heads = new_heads(one.learning_rates, num_classes, width, std, seed)
        file = folder / _file(backbone, images, one, seed)
        return RunningProbe(file, one, len(images), heads, where, tested)

    own = start(training)
    others = [] if own.finished else [one for one in map(start, peers) if one.can_join(own)]
    if not own.finished:
        with unchanged(images, *others, own):
            _read_stream(backbone, images, seed, network, own, others)
    return own


def _read_stream(
    backbone: Encoder,
    images: Images,
    seed: int,
    network: nn.Module,
    own: RunningProbe,
    others: Sequence[RunningProbe],
) -> None:
    """Give the features of a stream of crops to probes until the own one is done; save all."""
    before = weights_of(network)
    probes = [own, *others]
    sizes = [probe.training.batch_size for probe in probes]
    chunk = min(size if size % FORWARD_IMAGES else FORWARD_IMAGES for size in sizes)
    # the chunks of an interrupted run are those of an undisturbed one
    first = min(probe.place for probe in probes) // chunk
    chunks = range(first, math.ceil(own.end / chunk))
    batches = crop_batches(images, own.training, seed, backbone.input, chunk, chunks)
    check_at, going, last_save = own.step + own.ends[0], list(probes), time.monotonic()
    with progress("train", _label(probes), own.ends[-1], "steps", done=own.step) as counter:
        for number, (pixels, labels) in enumerate(batches, first):
            features, step = forward(network, pixels), own.step
            for probe in list(going):
                try:
                    probe.receive(number * chunk, features, labels)
                except NotFiniteError as error:
                    going.remove(probe)
                    if probe is own:
                        _save_all(going)  # the others, which need not begin anew
                        raise
                    told = f"the probe of {_described(probe.training)} on the same crops"
                    print_line("train", f"{told} is left out: {error}")
                else:
                    if probe.finished:
                        # before the save: a finished state is only loaded, never checked again
                        require_frozen(network, before)
                        probe.save()
                        going.remove(probe)
            counter.add(own.step - step)
            if step < check_at <= own.step:
                require_frozen(network, before)
            if stop.is_requested() or time.monotonic() - last_save > SAVE_EVERY_S:
                _save_all(going)
                last_save = time.monotonic()
                stop.exit_if_requested()
    _save_all(going)


def _save_all(probes: Sequence[RunningProbe]) -> None:
    """Save every probe, the own one, which is the first, last.

    It reads the stream again from its place, and a probe that is ahead waits for it; one that is
    behind could not go along. A kill between two saves must leave none behind.
    """
    for probe in reversed(probes):
        probe.save()


def _label(probes: Sequence[RunningProbe]) -> str:
    rates = len(probes[0].training.learning_rates)
    others = f" (and {len(probes) - 1} probes on the same crops)" if len(probes) > 1 else ""
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
    shared: Path | None = None,
    peers: Sequence[ProbeTraining] = (),
) -> Predictions:
    """Train heads, and score test with the final weights of one of them.

    These weights are stored in the folder, for tasks that use the classifier; the details name
    them. The details also hold top-1 after each pass and the best of these, which is not the
    result, unless test was replaced during the training, and the shares of a network's heads.
    shared: a folder where cells that read the same crops share their state; peers: the trainings of
    these cells, which go along.
    """
    if shared is None:
        probe = _train(backbone, images, training, seed, folder, (), test)
    else:  # another process's pass takes hours, and most often leaves the heads of this one, too
        stream = shared / _stream_name(backbone, images, training, seed)
        told = f"waits for the pass of another process: {stream}"
        with wait_for_lock(stream / "lock", "--runs", lambda: print_line("train", told)):
            probe = _train(backbone, images, training, seed, stream, peers, test)
    own = slice(head, head + 1)
    trained = probe.optimizer.heads()
    heads = Heads(trained.weight[own], trained.bias[own])
    scores = heads.scores(test.features)[0]
    if not bool(scores.isfinite().all()):
        raise NotFiniteError(
            f"the probe of rate {training.learning_rates[head]} diverged; no result is written"
        )
    details: dict[str, Any] = {"weights": save_classifier(folder, heads), "crops": CROPS}
    passes, number = [found[head] for found in probe.curve], len(probe.ends)
    if len(passes) == number:
        best = max(range(number), key=lambda index: passes[index])
        details |= {
            "top1_after_each_pass": passes,
            "best_top1": passes[best],
            "best_pass": best + 1,
        }
    else:
        print_line(
            "train",
            f"top-1 is known for {len(passes)} of {number} passes, the others had other test "
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


def _stream_name(backbone: Encoder, images: Images, training: ProbeTraining, seed: int) -> str:
    """Return the name of a stream: a hash of all that its features depend on."""
    view = [training.crop_px, training.labels, asdict(backbone.input)]
    parts = [backbone.sha256, backbone.precision, images.fingerprint, view, seed, CROPS]
    return f"stream-{content_hash(parts, 16)}"


def _file(backbone: Encoder, images: Images, training: ProbeTraining, seed: int) -> str:
    parts = [backbone.sha256, backbone.precision, images.fingerprint, asdict(training), seed, CROPS]
    return f"heads-{content_hash(parts, 16)}.pt"
