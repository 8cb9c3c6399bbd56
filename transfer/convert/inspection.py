"""The report of `python -m transfer inspect FILE` on a checkpoint."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from transfer.convert.account import Group
from transfer.convert.architectures import Stem, feature_dim, network_words
from transfer.convert.messages import escape

PLACES = {
    "backbone": "in the backbone",
    "head": "in a head",
    "feature pyramid": "in a feature pyramid",
    "another ResNet": "in another ResNet",
    "another network": "in another network",
    "optimizer": "in the optimizer",
    "beside the backbone": "beside the backbone",
}
"""The kinds of tensors in words."""
GRADES = {
    "outputs": "outputs: a second forward pass in plain functions gives the same features",
    "values": "values: names, shapes and values are the file's; no second forward pass knows it",
}
"""Grades of proof of an encoder in words."""
TRAINING = {
    "method": ("method", "recipe"),
    "changed": ("changed",),
    "epochs": ("epochs", "steps"),
    "data": ("data",),
    "run": ("seed", "precision", "num_processes", "texture"),
    "code": ("commit", "versions"),
}
"""Lines of the report on our own file, and the entries of `made_by` that they show."""


@dataclass(frozen=True, kw_only=True)
class Inspection:
    """The interpretation of a checkpoint file."""

    file: str
    layout: str
    prefix: str
    """Prefix of the backbone's tensors, with all enclosing keys of the file."""
    arch: str
    stem: Stem
    account: tuple[Group, ...]
    """Groups that hold every tensor of the file once."""
    candidates: tuple[str, ...]
    """Every complete ResNet in the file, the chosen one first."""
    choice: str
    """Reason for the choice."""
    proof: float | None = None
    """Largest relative difference of features from those of the raw tensors; None for our files."""
    topology: str = ""
    """Sentence on strides, paddings and pooling; empty for our files, which name them."""
    made_by: dict[str, object] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    known_as: str = ""
    """Sentence on the published file that this is; empty if it is not recognized."""
    num_features: int = 0
    """Feature dimension of an encoder; 0 for ResNets, whose architecture tells it."""
    grade: str = ""
    """Grade of an encoder's proof; empty for ResNets."""
    path: str = ""
    """Path of the file, as the user gave it."""
    image: str = ""
    """Images that the backbone expects: channels and size in pixels."""
    is_norm_stated: bool = False
    """True if a foreign file says mean and std of its images."""
    norm: str = ""
    """Mean and standard deviation per channel that images are normalized by."""

    @property
    def source(self) -> str:
        """One line for tables and logs."""
        where = f", prefix {self.prefix}" if self.prefix else ""
        why = f" ({self.choice})" if len(self.candidates) > 1 else ""
        return f"{self.file}: {self.layout} layout{where}{why}"


def render(inspection: Inspection, *, everything: bool = False) -> str:
    """Return the report, about a dozen lines.

    everything: also list the groups of tensors, and all that our own file says about its training.
    """
    lines = [*_network_lines(inspection), *_training_lines(inspection.made_by)]
    lines += [("note", note) for note in inspection.notes]
    if everything:
        lines += [("tensors", _group(group)) for group in inspection.account]
        lines += [("made by", f"{key} {value}") for key, value in _flat(inspection.made_by)]
    return escape("\n".join(f"{label:<14}{text}" for label, text in lines))


def _network_lines(inspection: Inspection) -> Iterator[tuple[str, str]]:
    """Yield label and text of the lines that hold for every file."""
    prefix = f", backbone below {inspection.prefix}" if inspection.prefix else ""
    num_tensors = sum(group.num_tensors for group in inspection.account)
    kinds: dict[str, int] = {}
    for group in inspection.account:
        kinds[group.kind] = kinds.get(group.kind, 0) + group.num_tensors
    counts = ", ".join(f"{count} {PLACES[kind]}" for kind, count in kinds.items())
    yield "path", inspection.path or inspection.file
    if inspection.known_as:
        yield "public file", inspection.known_as
    yield "format", f"{inspection.layout} layout{prefix}"
    yield "architecture", network_words(inspection.arch, inspection.stem)
    yield "features", f"{inspection.num_features or feature_dim(inspection.arch)} per image"
    if inspection.image:
        yield "image", inspection.image
    if inspection.norm:
        yield "norm", inspection.norm
    yield "weights", f"{num_tensors} tensors, all accounted for: {counts}"
    yield "proof", GRADES.get(inspection.grade) or _proof(inspection.proof)
    if inspection.topology:
        yield "topology", inspection.topology
    if len(inspection.candidates) > 1:
        chosen, *others = inspection.candidates
        yield "chosen", f"{chosen}: {inspection.choice}"
        yield "not taken", "; ".join(others)


def _training_lines(made_by: Mapping[str, object]) -> Iterator[tuple[str, str]]:
    """Yield label and text of the lines about the training; absent and empty entries are left out.

    An entry is named in its line unless the label is its name.
    """
    for label, keys in TRAINING.items():
        parts = [
            text if key in (label, "versions") else f"{key} {text}"
            for key in keys
            if (text := _text(made_by.get(key)))
        ]
        if parts:
            yield label, ", ".join(parts)


def _text(value: object) -> str:
    """Return a value of `made_by` in words; empty for None and empty collections."""
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_text(inner)}" for key, inner in value.items())
    if isinstance(value, list | tuple):
        return " ".join(map(_text, value))
    if isinstance(value, float):
        return f"{value:g}"
    return "" if value is None else str(value)


def _flat(entries: Mapping[str, object], prefix: str = "") -> Iterator[tuple[str, str]]:
    """Yield every entry with its text, nested ones as outer.inner."""
    for key, value in entries.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{prefix}{key}.")
        else:
            yield prefix + key, _text(value)


def _group(group: Group) -> str:
    where = f"below {group.prefix}" if group.prefix else "without a prefix"
    return f"{group.num_tensors} {PLACES[group.kind]} {where}, {group.num_values:,} values"


def _proof(difference: float | None) -> str:
    if difference is None:
        return "not needed: this suite wrote the file, and names and shapes agree"
    return (
        f"names and shapes fit, and features equal those of the file's own tensors under the "
        f"same strides, paddings and pooling (relative difference {difference:.1e})"
    )
