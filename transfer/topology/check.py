"""Which of the networks that share a file's names and shapes do its running statistics fit?

A foreign backbone is checked before it is evaluated, once per weights, and can be converted.

Two questions are asked one after the other, since the first norm hardly depends on what follows it:
which input explains the statistics of the first norm best, and which network those of all norms.
"""

import io
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from operator import attrgetter
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torchvision.models import ResNet

from pretrain.running.atomic_files import content_hash, write_whole
from transfer.backbone import FORMAT, OWN_FORMATS, Backbone, BackboneError, InputFormat
from transfer.convert.architectures import Stem, is_large
from transfer.encoders.encoder import Encoder
from transfer.record import write_json
from transfer.topology.known_networks import INPUTS, NETWORKS, Input
from transfer.topology.statistics import (
    divergence,
    moments_of,
    natural_images,
    recorded_moments,
    score,
    stored_moments,
)

NUM_IMAGES = 32
"""Photographs that are compared."""

MIN_IMAGES = 16
"""Fewest photographs that allow an answer."""

SIZES_PX = {True: (224, 128, 64), False: (64, 32)}
"""Sizes of the photographs for a large stem and for a small one; a file's own is not known.

All are multiples of 32, since the average pools of anti-aliased networks need even maps.
"""

CLEARLY_BETTER = 0.5
"""A variant refutes the assumption if its score is below this share of the assumption's.

Measured on networks trained for some hundred steps.
"""

MIN_GAIN = 0.0005
"""Smallest difference in nats that refutes: between tiny divergences a ratio says nothing."""

BETTER = 0.9
"""The topology is unclear where a variant's score is below this share of the assumption's."""

MAX_SCORE = 0.5
"""Largest score in nats that explains anything; networks trained here have 0.001 to 0.005."""


@dataclass(frozen=True, kw_only=True)
class Score:
    """How well one variant explains the stored statistics."""

    name: str
    nats: float
    """Divergence of the photographs' statistics from the stored ones; 0 is best."""
    size_px: int
    """Size of the photographs at which it is smallest."""


NATS = attrgetter("nats")


@dataclass(frozen=True, kw_only=True)
class Topology:
    """Comparison of a file's running statistics with those of photographs."""

    num_images: int
    inputs: tuple[Score, ...] = ()
    """Scores of the first norm for each input, the assumed one first."""
    networks: tuple[Score, ...] = ()
    """Scores over all norms for each network with the best input, the assumed network first."""

    @property
    def checked(self) -> bool:
        """True if there were enough photographs."""
        return self.num_images >= MIN_IMAGES

    @property
    def input(self) -> Score:
        """Assumed input, or another that fits clearly better."""
        return winner_of(self.inputs)

    @property
    def network(self) -> Score:
        """Assumed network, or another that fits clearly better."""
        return winner_of(self.networks)

    @property
    def undecided(self) -> bool:
        """True if not even the best variants explain the statistics."""
        return max(self.network.nats, self.input.nats) > MAX_SCORE

    @property
    def contradiction(self) -> str:
        """Variants that fit clearly better than the assumed ones; empty if none does."""
        return " and ".join(
            f"{winner.name} ({winner.nats:.4f} nats; {scores[0].name}: {scores[0].nats:.4f})"
            for scores in (self.networks, self.inputs)
            if scores and (winner := winner_of(scores)) is not scores[0]
        )

    @property
    def sentence(self) -> str:
        """One line that says what was proven."""
        if not self.checked:
            return (
                f"topology not checked: {self.num_images} photographs are at hand, "
                f"{MIN_IMAGES} are needed"
            )
        on_images = f"on {self.num_images} photographs"
        if self.contradiction:
            what = "input" if self.network is self.networks[0] else "network"
            return f"running statistics {on_images} fit another {what}: {self.contradiction}"
        assumed = self.networks[0]
        if self.undecided:
            return (
                f"topology undecided: no known network and input fit {on_images} "
                f"({assumed.nats:.4f} nats; input: {self.inputs[0].nats:.4f})"
            )
        pairs = [(scores[0], min(scores[1:], key=NATS)) for scores in (self.networks, self.inputs)]
        is_unclear = any(second.nats < BETTER * first.nats for first, second in pairs)
        verdict = "unclear" if is_unclear else "not contradicted by running statistics"
        compared = "; ".join(
            f"{first.name}: {first.nats:.4f} nats, best other is {second.name}: {second.nats:.4f}"
            for first, second in pairs
        )
        return f"topology {verdict} {on_images} at {assumed.size_px} px ({compared})"


def render_scores(topology: Topology) -> str:
    """Return a line per variant; none if there were too few photographs."""
    lines = []
    for label, scores in (("network", topology.networks), ("input", topology.inputs)):
        best = min((entry.nats for entry in scores), default=0.0)
        for number, entry in enumerate(scores):
            words = ", ".join(["assumed"] * (number == 0) + ["best"] * (entry.nats == best))
            text = f"{entry.nats:9.4f} nats  {entry.name}, {entry.size_px} px  {words}"
            lines.append(f"{label:<14}{text}".rstrip())
    return "\n".join(lines)


def check_topology(backbone: Backbone, images: Tensor, sizes_px: Sequence[int] = ()) -> Topology:
    """Compare the known variants of the backbone's network and input, each at its best size.

    images: natural photographs (n, 3, H, W), RGB from 0 to 1, H and W at least the largest size.
    sizes_px: sizes to compare at; SIZES_PX if empty.
    """
    if len(images) < MIN_IMAGES:
        return Topology(num_images=len(images))
    at_sizes = {
        size: F.interpolate(images, size=size, mode="bilinear", antialias=True)
        if images.shape[-1] != size
        else images
        for size in sizes_px or SIZES_PX[is_large(backbone.stem)]
    }
    with torch.inference_mode():
        ways = {way.name: way for way in inputs_of(backbone.input)}
        conv1 = _plain_network(backbone).conv1
        stored = backbone.state_dict["bn1.running_mean"], backbone.state_dict["bn1.running_var"]
        inputs = tuple(
            _best_size(
                name,
                {s: divergence(moments_of(conv1(way(at))), stored) for s, at in at_sizes.items()},
            )
            for name, way in ways.items()
        )
        way = ways[winner_of(inputs).name]
        networks = tuple(
            _best_size(name, {s: score(network, way(at)) for s, at in at_sizes.items()})
            for name, network in _networks_of(backbone)
        )
    return Topology(num_images=len(images), inputs=inputs, networks=networks)


def input_scores(network: nn.Module, form: InputFormat, images: Tensor) -> tuple[Score, ...]:
    """Return how well each known input explains the first batch norm of any network in eval mode.

    The assumed input comes first. images: photographs (n, 3, S, S), RGB from 0 to 1, of the
    network's size. Empty for a network without running statistics, and for too few photographs.
    """
    stored = stored_moments(network)
    if not stored or len(images) < MIN_IMAGES:
        return ()
    scores = []
    with torch.inference_mode():
        for way in inputs_of(form):
            with recorded_moments(network) as moments:
                network(way(images))
            first = next(name for name in moments if name in stored)
            nats = divergence(moments[first], stored[first])
            scores.append(Score(name=way.name, nats=nats, size_px=images.shape[-1]))
    return tuple(scores)


def _best_size(name: str, nats: Mapping[int, float]) -> Score:
    """Return the smallest of the scores by size in pixels."""
    size_px = min(nats, key=lambda size: (nats[size], size))
    return Score(name=name, nats=nats[size_px], size_px=size_px)


def inputs_of(form: InputFormat) -> list[Input]:
    """Return the assumed input and every other known one."""
    assumed = Input(name="RGB, mean and std of the file", mean=form.mean, std=form.std)
    same = [w for w in INPUTS if w.normalization == assumed.normalization and not w.reverse]
    return [*(same or [assumed]), *(way for way in INPUTS if way not in same)]


def _networks_of(backbone: Backbone) -> Iterator[tuple[str, ResNet]]:
    """Yield name and network of the assumed variant, then of every other known one."""
    known = [variant for variant in NETWORKS if variant.fits(backbone.arch, backbone.stem)]
    for variant in sorted(known, key=lambda variant: backbone.stem != variant.stem):
        network = _plain_network(backbone)
        variant.change(network)
        yield variant.name, network


def _plain_network(backbone: Backbone) -> ResNet:
    """Return the network with the backbone's weights and the plain stem of its kernel."""
    stem: Stem = "imagenet" if is_large(backbone.stem) else "cifar"
    return replace(backbone, stem=stem).network()


def winner_of(scores: Sequence[Score]) -> Score:
    """Return the first score, the assumption's, unless another is clearly better and good."""
    best = min(scores, key=NATS)
    clearly = best.nats < CLEARLY_BETTER * scores[0].nats
    refuted = clearly and scores[0].nats - best.nats > MIN_GAIN and best.nats < MAX_SCORE
    return best if refuted else scores[0]


def with_checked_topology(
    backbone: Backbone, data: Path, cache: Path, *, trusted: bool = False
) -> Backbone:
    """Return the backbone, whose source now says what is known of its topology.

    data: folder with photographs anywhere below it; cache: folder for the comparison. Our own
    files name their network and are returned unchanged, as are random initializations.
    BackboneError if another network or input fits the running statistics clearly better, unless
    `trusted`.
    """
    if isinstance(backbone, Encoder):
        return _with_checked_input(backbone, data, trusted=trusted)
    is_own = any(f": {form} layout" in backbone.source for form in OWN_FORMATS)
    if is_own or not backbone.file_sha256:
        return backbone
    topology = topology_of(backbone, data, cache)
    if topology.contradiction and not trusted:
        raise BackboneError(
            f"{backbone.source}: {topology.sentence}. With the assumed network the features would "
            f"be wrong. Look at `python -m transfer inspect FILE --images {data}`; --write there "
            f"saves the file as the network that fits where this suite can build it, and "
            f"--trust-topology evaluates the assumed network nevertheless"
        )
    return replace(backbone, source=f"{backbone.source}; {topology.sentence}")


def _with_checked_input(encoder: Encoder, data: Path, *, trusted: bool) -> Encoder:
    """Return the encoder, whose source now says if photographs contradict its stated input."""
    images = natural_images(data, count=NUM_IMAGES, size_px=encoder.input.size_px)
    scores = input_scores(encoder.network(), encoder.input, images)
    if not scores:  # no running statistics, or no photographs
        return encoder
    best = winner_of(scores)
    words = f"{best.name} ({best.nats:.4f} nats; {scores[0].name}: {scores[0].nats:.4f})"
    if best is scores[0]:
        sentence = f"input not contradicted by running statistics on {len(images)} photographs"
    elif trusted:
        sentence = f"trusted, although running statistics fit another input: {words}"
    else:
        raise BackboneError(
            f"{encoder.source}: running statistics on {len(images)} photographs fit another input: "
            f"{words}. Say --input-mean and --input-std, or --trust-topology"
        )
    return replace(encoder, source=f"{encoder.source}; {sentence}")


def topology_of(backbone: Backbone, data: Path, cache: Path) -> Topology:
    """Return the comparison for these weights, from the cache if enough images were at hand."""
    kept = cache / "topology" / f"{content_hash([backbone.sha256, str(data.absolute())], 24)}.json"
    with suppress(FileNotFoundError, KeyError, TypeError, ValueError):
        content = json.loads(kept.read_text())
        inputs, networks = (
            tuple(Score(**score) for score in content[kind]) for kind in ("inputs", "networks")
        )
        return Topology(num_images=content["num_images"], inputs=inputs, networks=networks)
    topology = compare_with_photographs(backbone, data)
    if topology.num_images >= MIN_IMAGES:
        with suppress(OSError):  # a full or read-only disk: the next process compares again
            write_json(kept, asdict(topology))
    return topology


def compare_with_photographs(backbone: Backbone, folder: Path) -> Topology:
    """Return the comparison with photographs below a folder."""
    size_px = max(SIZES_PX[is_large(backbone.stem)])
    return check_topology(backbone, natural_images(folder, count=NUM_IMAGES, size_px=size_px))


def write_as_fits(backbone: Backbone, topology: Topology, path: Path) -> Backbone:
    """Write the backbone as the best-fitting network that this suite can build; return it.

    Channels in BGR, the range of the pixels and their normalization are absorbed exactly: the
    features are those of the fitting network. BackboneError if the topology was not checked or is
    undecided, or for a network that this suite cannot build.
    """
    if not topology.checked or topology.undecided:
        raise BackboneError(f"{topology.sentence}; nothing is written")
    (network,) = (known for known in NETWORKS if known.name == topology.network.name)
    (way,) = (way for way in inputs_of(backbone.input) if way.name == topology.input.name)
    if network.stem is None:
        raise BackboneError(
            f"the file fits {network.name!r}, which this suite cannot build: take a checkpoint of "
            f"torchvision's network, or evaluate it in the project that trained it"
        )
    weights = backbone.state_dict
    if way.reverse:
        weights = weights | {"conv1.weight": weights["conv1.weight"].flip(1)}
    mean, std = (tuple(level / way.scale for level in levels) for levels in (way.mean, way.std))
    form = replace(backbone.input, mean=mean, std=std)
    rebuilt = replace(backbone, stem=network.stem, state_dict=weights, input=form)
    content = {
        "format": FORMAT,
        "arch": rebuilt.arch,
        "stem": rebuilt.stem,
        "input": {"mean": [*mean], "std": [*std], "size": form.size_px, "channels": "RGB"},
        "made_by": {"converted_from": backbone.source, "topology": topology.sentence},
        "state_dict": rebuilt.state_dict,
    }
    buffer = io.BytesIO()
    torch.save(content, buffer)
    write_whole(path, buffer.getvalue())
    return rebuilt
