"""The report of `python -m transfer inspect FILE` on a checkpoint."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from transfer.encoders.architectures import Stem, network_words
from transfer.encoders.naming import escape


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """The interpretation of a checkpoint file."""

    path: str
    """Path of the file, as the user gave it."""
    layout: str
    prefix: str
    """Prefix of the backbone's tensors, with all enclosing keys of the file."""
    arch: str
    stem: Stem
    kinds: Counter[str]
    """Number of tensors by kind: backbone, head, another network, optimizer, ..."""
    candidates: tuple[str, ...]
    """Every complete ResNet in the file, the chosen one first."""
    choice: str
    """Reason for the choice."""
    proof: str
    """How many tensors of the network come from the file."""
    num_features: int
    """Feature dimension."""
    assumed: str = ""
    """Settings that neither tensors nor entries of a third-party file show; empty for our files."""
    made_by: dict[str, object] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    known_as: str = ""
    """Sentence on the published file that this is; empty if it is not recognized."""
    image: str = ""
    """Images that the backbone expects: channels and size in pixels."""
    norm: str = ""
    """Mean and standard deviation per channel that images are normalized by."""


def render(inspection: Inspection, *, everything: bool = False) -> str:
    """Return the report, a line per fact.

    everything: also list the settings of the training of our own file.
    """
    lines = [*_network_lines(inspection)]
    entries = ((key, _text(value)) for key, value in inspection.made_by.items())
    lines += [entry for entry in entries if entry[1] and (everything or entry[0] != "settings")]
    lines += [("note", note) for note in inspection.notes]
    return escape("\n".join(f"{label:<13} {text}" for label, text in lines))


def _network_lines(inspection: Inspection) -> Iterator[tuple[str, str]]:
    """Yield label and text of the lines that hold for every file."""
    prefix = f", backbone below {inspection.prefix}" if inspection.prefix else ""
    counts = ", ".join(f"{kind} {count}" for kind, count in inspection.kinds.items())
    yield "path", inspection.path
    if inspection.known_as:
        yield "public file", inspection.known_as
    yield "format", f"{inspection.layout} layout{prefix}"
    yield "architecture", network_words(inspection.arch, inspection.stem)
    yield "features", f"{inspection.num_features} per image"
    yield "image", inspection.image
    yield "norm", inspection.norm
    yield "weights", f"{inspection.kinds.total()} tensors, all accounted for: {counts}"
    yield "proof", inspection.proof
    if inspection.assumed:
        yield "assumed", inspection.assumed
    if len(inspection.candidates) > 1:
        chosen, *others = inspection.candidates
        yield "chosen", f"{chosen}: {inspection.choice}"
        yield "not taken", "; ".join(others)


def _text(value: object) -> str:
    """Return a value of `made_by` in words; empty for None and empty collections."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_text(inner)}" for key, inner in value.items())
    if isinstance(value, list | tuple):
        return " ".join(map(_text, value))
    if isinstance(value, float):
        return f"{value:g}"
    return "" if value is None else str(value)
