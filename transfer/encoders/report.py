"""The report of `python -m transfer inspect FILE`."""

from collections import Counter
from dataclasses import dataclass

from transfer.encoders.architectures import network_words
from transfer.encoders.encoder import Encoder
from transfer.fact_tables import value_text


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
    prefix = f", backbone under {inspection.prefix}" if inspection.prefix else ""
    counts = ", ".join(f"{kind} {count}" for kind, count in inspection.kinds.items())
    loaded, total = inspection.num_loaded, len(encoder.state_dict)
    verified = f"{loaded} of {total} tensors set once from the file, with equal shapes"
    if loaded < total:
        verified += "; the others are counters or constants"
    selected, *unused = inspection.candidates
    lines = [
        ("path", encoder.file),
        ("public file", inspection.public_file_note),
        ("format", f"{inspection.layout} layout{prefix}"),
        ("architecture", network_words(encoder.arch, encoder.stem)),
        ("features", f"{encoder.feature_dim} per image"),
        ("image", describe_input(encoder)),
        ("norm", encoder.input.norm),
        ("weights", f"{inspection.kinds.total()} tensors, all accounted for: {counts}"),
        ("verified", verified),
        ("assumed", inspection.assumed),
        ("chosen", f"{selected}: {inspection.choice}" if unused else ""),
        ("not taken", "; ".join(unused)),
    ]
    for key, value in encoder.made_by.items():
        if everything or key != "settings":
            lines.append((key, value_text(value)))
    lines += [("note", note) for note in inspection.notes]
    return "\n".join(f"{label:<13} {text}" for label, text in lines if text)


def describe_input(encoder: Encoder) -> str:
    """Describe an encoder's images, and the pooling unless it is a ResNet."""
    images = f"{encoder.input.channels}, {encoder.input.size_px} px"
    if encoder.is_resnet:
        return images
    origin = "as requested" if encoder.options.input_px else "as the source says"
    return f"{images}, {origin}; pooling {encoder.options.pool or 'by the network'}"
