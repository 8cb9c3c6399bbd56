"""The report of `python -m transfer inspect FILE`."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from transfer.encoders.architectures import network_words
from transfer.encoders.encoder import Encoder
from transfer.encoders.naming import escape


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """How the file of an `Encoder` was read."""

    layout: str
    """Project that uses these tensor names, or the user's encoder name."""
    prefix: str
    """Prefix of the network's tensors, including all enclosing keys of the file."""
    kinds: Counter[str]
    """Number of tensors by kind: backbone, head, another network, optimizer, ..."""
    num_loaded: int
    """Number of the network's tensors that come from the file."""
    candidates: tuple[str, ...]
    """All complete networks in the file, the selected one first."""
    choice: str
    """Reason for the choice."""
    assumed: str = ""
    """Settings that a third-party file does not declare; empty for our files."""
    notes: tuple[str, ...] = ()
    public_file_note: str = ""
    """Sentence about the published file; empty if it is not recognized."""


def render(encoder: Encoder, inspection: Inspection, *, everything: bool = False) -> str:
    """Return the report on an encoder, one fact per line.

    everything: also list the training settings in a file of our format.
    """
    lines = [*_network_lines(encoder, inspection)]
    entries = ((key, _text(value)) for key, value in encoder.made_by.items())
    lines += [entry for entry in entries if entry[1] and (everything or entry[0] != "settings")]
    lines += [("note", note) for note in inspection.notes]
    return escape("\n".join(f"{label:<13} {text}" for label, text in lines))


def _network_lines(encoder: Encoder, inspection: Inspection) -> Iterator[tuple[str, str]]:
    """Yield label and text of the lines that every report has."""
    prefix = f", backbone under {inspection.prefix}" if inspection.prefix else ""
    counts = ", ".join(f"{kind} {count}" for kind, count in inspection.kinds.items())
    yield "path", encoder.file
    if inspection.public_file_note:
        yield "public file", inspection.public_file_note
    yield "format", f"{inspection.layout} layout{prefix}"
    yield "architecture", network_words(encoder.arch, encoder.stem)
    yield "features", f"{encoder.feature_dim} per image"
    channels = (encoder.input.mean, encoder.input.std)
    mean, std = (" ".join(f"{value:g}" for value in values) for values in channels)
    yield "image", describe_input(encoder)
    yield "norm", f"mean {mean}, std {std}"
    yield "weights", f"{inspection.kinds.total()} tensors, all accounted for: {counts}"
    loaded, total = inspection.num_loaded, len(encoder.state_dict)
    note = "; the others are counters or constants" if loaded < total else ""
    yield "verified", f"{loaded} of {total} tensors set once from the file, with equal shapes{note}"
    if inspection.assumed:
        yield "assumed", inspection.assumed
    if len(inspection.candidates) > 1:
        selected, *unused = inspection.candidates
        yield "chosen", f"{selected}: {inspection.choice}"
        yield "not taken", "; ".join(unused)


def describe_input(encoder: Encoder) -> str:
    """Describe an encoder's images, and the pooling unless it is a ResNet."""
    images = f"{encoder.input.channels}, {encoder.input.size_px} px"
    if encoder.is_resnet:
        return images
    origin = "as requested" if encoder.options.input_px else "as the source says"
    return f"{images}, {origin}; pooling {encoder.options.pool or 'by the network'}"


def _text(value: object) -> str:
    """Return a value of `made_by` as text.

    Empty for None and empty collections.
    """
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_text(inner)}" for key, inner in value.items())
    if isinstance(value, list | tuple):
        return " ".join(map(_text, value))
    if isinstance(value, float):
        return f"{value:g}"
    return "" if value is None else str(value)
