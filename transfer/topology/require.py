"""The check of a foreign backbone before it is evaluated, once per weights, and its conversion."""

import io
import json
from contextlib import suppress
from dataclasses import asdict, replace
from pathlib import Path

import torch

from pretrain.running.atomic_files import content_hash, write_whole
from transfer.backbone import FORMAT, OWN_FORMATS, Backbone, BackboneError
from transfer.convert.architectures import is_large
from transfer.encoders.encoder import Encoder
from transfer.record import write_json
from transfer.topology.check import (
    MIN_IMAGES,
    NUM_IMAGES,
    SIZES_PX,
    Score,
    Topology,
    check_topology,
    input_scores,
    inputs_of,
    winner_of,
)
from transfer.topology.known_networks import NETWORKS
from transfer.topology.statistics import natural_images


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
