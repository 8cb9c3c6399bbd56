"""Find every ResNet in a list of tensors."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from torch import Tensor

from transfer.convert.architectures import FEATURE_DIM, Stem, is_optional, network_words
from transfer.convert.layouts import SCHEMES, Scheme
from transfer.convert.resnet import tensor_shapes

MAX_DOTS = 40
"""Most dots in the name of a backbone's tensor; each is a place where a prefix may end."""

Entry = Tensor | str
"""A tensor, or the class of an object that is not read."""

MIN_NAMES = 20
"""Fewest matching names for a prefix to be a candidate; the smallest ResNet has 100."""


@dataclass(frozen=True)
class Candidate:
    """A ResNet below one prefix, complete or with flaws."""

    scheme: Scheme
    prefix: str
    arch: str
    stem: Stem
    names: dict[str, str]
    """Torchvision's name -> the file's name, for each tensor that fits."""
    flaws: Mapping[str, list[str]]
    """Tensors that keep it from being complete, by kind.

    missing: names, as the file would have them; wrong shape: name, found and expected shape;
    unexpected: names that only another ResNet has; not read: name and class of what only foreign
    code could make.
    """

    @property
    def num_flaws(self) -> int:
        """Number of missing, misshapen, unexpected and unread tensors."""
        return sum(map(len, self.flaws.values()))

    @property
    def label(self) -> str:
        """Return the prefix, or words for none."""
        return self.prefix or "(no prefix)"

    @property
    def network(self) -> tuple[str, Stem]:
        """Return architecture and stem."""
        return self.arch, self.stem

    def has(self, side: str) -> bool:
        """Return whether the prefix matches the pattern of one side of a method."""
        return re.search(side, self.prefix) is not None

    def __str__(self) -> str:
        return f"{self.label} ({network_words(self.arch, self.stem)})"


@cache
def _layers(scheme: Scheme, arch: str, stem: Stem) -> dict[str, tuple[str, tuple[int, ...]]]:
    """Return torchvision's name -> the scheme's name and the shape, for every tensor."""
    return {name: (scheme.rename(name), shape) for name, shape in tensor_shapes(arch, stem).items()}


@cache
def _vocabulary(scheme: Scheme) -> frozenset[str]:
    """Return every tensor name that some ResNet has under the scheme."""
    return frozenset(
        name for arch in FEATURE_DIM for name, _ in _layers(scheme, arch, scheme.stems[0]).values()
    )


def find_candidates(tensors: Mapping[str, Tensor], opaque: Mapping[str, str]) -> list[Candidate]:
    """Return a candidate per scheme and prefix with at least MIN_NAMES matching names, in order.

    Names alone select a candidate; its tensors' shapes select architecture and stem.
    opaque: objects of the file that are not read; one in the place of a tensor is a flaw.
    """
    entries: dict[str, Entry] = {**tensors, **opaque}
    votes: Counter[tuple[Scheme, str]] = Counter()
    for name in entries:
        if name.count(".") > MAX_DOTS:
            continue
        starts = [0, *(dot.end() for dot in re.finditer(r"\.", name))]
        for scheme in SCHEMES:
            vocabulary = _vocabulary(scheme)
            votes.update((scheme, name[:i]) for i in starts if name[i:] in vocabulary)
    return [
        _examine(scheme, prefix, entries)
        for (scheme, prefix), count in votes.items()
        if count >= MIN_NAMES
    ]


def _examine(scheme: Scheme, prefix: str, entries: Mapping[str, Entry]) -> Candidate:
    """Return the architecture and stem with the fewest flaws below `prefix`."""
    below = {name.removeprefix(prefix) for name in entries if name.startswith(prefix)}
    known = below & _vocabulary(scheme)
    fits = (
        Candidate(scheme, prefix, arch, stem, *fit(prefix, layers, entries, known))
        for arch in FEATURE_DIM
        for stem in scheme.stems
        for layers in [_layers(scheme, arch, stem)]
    )
    return min(fits, key=lambda candidate: candidate.num_flaws)


def fit(
    prefix: str,
    layers: Mapping[str, tuple[str, tuple[int, ...]]],
    entries: Mapping[str, Entry],
    known: Iterable[str] = (),
) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Return names and flaws of the candidate with these layers below a prefix.

    layers: the network's own name -> the file's name without the prefix, and the shape. known:
    names below the prefix that must be among these.
    """
    names: dict[str, str] = {}
    flaws: dict[str, list[str]] = {"missing": [], "wrong shape": [], "not read": []}
    flaws["unexpected"] = sorted(prefix + n for n in {*known} - {own for own, _ in layers.values()})
    for own_name, (theirs, expected) in layers.items():
        name = prefix + theirs
        entry = entries.get(name)
        if isinstance(entry, Tensor) and (entry.shape == expected or is_optional(name)):
            names[own_name] = name
        elif is_optional(name):
            continue
        elif entry is None:
            flaws["missing"].append(name)
        elif isinstance(entry, str):
            flaws["not read"].append(f"{name}, an object of {entry} and not a plain tensor")
        else:
            flaws["wrong shape"].append(f"{name} {tuple(entry.shape)} instead of {expected}")
    return names, flaws
