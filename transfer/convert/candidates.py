"""Find every ResNet in a list of tensors, and choose the backbone among them."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import torch

from transfer.convert.architectures import FEATURE_DIM, BackboneError, Stem, is_optional
from transfer.convert.layouts import SCHEMES, Scheme
from transfer.convert.resnet import tensor_shapes
from transfer.convert.safe_pickle import StoredTensor

MIN_NAMES = 20
"""Fewest matching names for a prefix to be a candidate; the smallest ResNet has 100."""

MOMENTUM_SIDE = (
    r"encoder_k|key_encoder|momentum|moco_encoder|target|teacher|(^|[._])ema([._]|$)|_k\."
)
QUERY_SIDE = r"encoder_q|base_encoder|query|online|student"


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A ResNet below one prefix, complete or with flaws."""

    scheme: Scheme
    prefix: str
    arch: str
    stem: Stem
    names: dict[str, str]
    """Torchvision's name -> the file's name, for each tensor that fits."""
    missing: tuple[str, ...]
    """Names, as the file would have them, of tensors that are absent."""
    misshapen: tuple[str, ...]
    """Name, found shape and expected shape of each tensor of another shape."""
    surplus: tuple[str, ...]
    """Names of tensors that only a deeper or another ResNet has."""

    @property
    def num_flaws(self) -> int:
        """Number of missing, misshapen and unexpected tensors."""
        return len(self.missing) + len(self.misshapen) + len(self.surplus)

    def has(self, side: str) -> bool:
        """Return whether the prefix matches `side`, such as QUERY_SIDE."""
        return re.search(side, self.prefix) is not None

    def __str__(self) -> str:
        return f"{self.prefix or '(no prefix)'} ({self.arch}, {self.stem} stem)"


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


def find_candidates(tensors: Mapping[str, StoredTensor]) -> list[Candidate]:
    """Return a candidate per scheme and prefix with at least MIN_NAMES matching names, in order.

    Names alone select a candidate; its tensors' shapes select architecture and stem.
    """
    votes: Counter[tuple[Scheme, str]] = Counter()
    for name in tensors:
        starts = [0, *(dot.end() for dot in re.finditer(r"\.", name))]
        for scheme in SCHEMES:
            vocabulary = _vocabulary(scheme)
            votes.update((scheme, name[:i]) for i in starts if name[i:] in vocabulary)
    return [
        _examine(scheme, prefix, tensors)
        for (scheme, prefix), count in votes.items()
        if count >= MIN_NAMES
    ]


def _examine(scheme: Scheme, prefix: str, tensors: Mapping[str, StoredTensor]) -> Candidate:
    """Return the architecture and stem with the fewest flaws below `prefix`."""
    below = {name.removeprefix(prefix) for name in tensors if name.startswith(prefix)}
    known = below & _vocabulary(scheme)
    fits = (
        _compare(scheme, prefix, arch, stem, known, tensors)
        for arch in FEATURE_DIM
        for stem in scheme.stems
    )
    return min(fits, key=lambda candidate: candidate.num_flaws)


def _compare(
    scheme: Scheme,
    prefix: str,
    arch: str,
    stem: Stem,
    known: set[str],
    tensors: Mapping[str, StoredTensor],
) -> Candidate:
    names, missing, misshapen = {}, [], []
    layers = _layers(scheme, arch, stem)
    for torchvision_name, (own_name, expected) in layers.items():
        name = prefix + own_name
        if own_name not in known:
            if not is_optional(name):
                missing.append(name)
        elif (found := tensors[name].shape) != expected and not is_optional(name):
            misshapen.append(f"{name} {found} instead of {expected}")
        else:
            names[torchvision_name] = name
    surplus = known - {own_name for own_name, _ in layers.values()}
    return Candidate(
        scheme=scheme,
        prefix=prefix,
        arch=arch,
        stem=stem,
        names=names,
        missing=tuple(missing),
        misshapen=tuple(misshapen),
        surplus=tuple(sorted(prefix + name for name in surplus)),
    )


def choose(
    candidates: list[Candidate], tensors: Mapping[str, StoredTensor]
) -> tuple[Candidate, str]:
    """Return the backbone among the candidates, and the reason for the choice.

    A complete candidate has every name, in its shape. BackboneError if none is complete, or if
    several are and no name says which is the backbone.
    """
    complete = [candidate for candidate in candidates if candidate.num_flaws == 0]
    if not complete:
        raise BackboneError(_refusal(candidates, tensors))
    chosen, reason = _prefer(complete, tensors)
    if chosen.has(MOMENTUM_SIDE) and not chosen.has("teacher"):
        # if the query encoder is damaged, the momentum copy must not silently replace it
        damaged = [c for c in candidates if c.num_flaws and not c.has(MOMENTUM_SIDE)]
        if damaged:
            raise BackboneError(_refusal(damaged, tensors))
    if chosen.scheme.refusal:
        raise BackboneError(
            f"below {chosen.prefix!r} stands a network that is not torchvision's ResNet: "
            f"{chosen.scheme.refusal}; its features would differ. Train with a torchvision ResNet"
        )
    return chosen, reason


def _prefer(
    complete: list[Candidate], tensors: Mapping[str, StoredTensor]
) -> tuple[Candidate, str]:
    if len(complete) == 1:
        return complete[0], "the only complete ResNet in the file"
    teachers = [candidate for candidate in complete if candidate.has("teacher")]
    if len(teachers) == 1 and any(candidate.has("student") for candidate in complete):
        return teachers[0], "the teacher, which DINO's authors evaluate"
    online = [candidate for candidate in complete if not candidate.has(MOMENTUM_SIDE)]
    if len(online) == 1:
        return online[0], "the query side, not its momentum copy"
    if online and all(_equal(online[0], other, tensors) for other in online[1:]):
        return online[0], f"one ResNet under {len(online)} names"
    query = [candidate for candidate in online if candidate.has(QUERY_SIDE)]
    if len(query) == 1:
        return query[0], "the query side"
    raise BackboneError(
        f"{len(complete)} complete ResNets are in the file, and no name tells the backbone: "
        f"{'; '.join(map(str, complete))}. Save the one that you mean in a file of its own"
    )


def _equal(one: Candidate, other: Candidate, tensors: Mapping[str, StoredTensor]) -> bool:
    if (one.arch, one.stem) != (other.arch, other.stem):
        return False
    return all(
        torch.equal(tensors[name].read(), tensors[other.names[key]].read())
        for key, name in one.names.items()
        if not is_optional(name)
    )


def _refusal(candidates: list[Candidate], tensors: Mapping[str, StoredTensor]) -> str:
    """Return a message that says what was found instead of a complete ResNet."""
    if not candidates:
        examples = ", ".join(list(tensors)[:3])
        transformer = any(re.search("cls_token|pos_embed|patch_embed", name) for name in tensors)
        kind = "look like a Vision Transformer's" if transformer else "belong to no ResNet"
        return (
            f"its {len(tensors)} tensors ({examples}, ...) {kind}; expected the weights of one of "
            f"{', '.join(FEATURE_DIM)} below some prefix. Only ResNets can be transferred"
        )
    best = max(candidates, key=lambda candidate: len(candidate.names) - candidate.num_flaws)
    shapes = tensor_shapes(best.arch, best.stem)
    convolutions = [name for name, shape in shapes.items() if len(shape) == 4]
    found = sum(name in best.names for name in convolutions)
    flaws = [
        f"{word} {', '.join(names[:3])}" + (f" and {len(names) - 3} more" if names[3:] else "")
        for word, names in (
            ("missing", best.missing),
            ("wrong shape", best.misshapen),
            ("unexpected", best.surplus),
        )
        if names
    ]
    return (
        f"no complete ResNet; nearest is {best.arch} ({best.stem} stem, {best.scheme.name} names) "
        f"with {found} of {len(convolutions)} convolutions under prefix {best.prefix!r}: "
        f"{'; '.join(flaws)}. Export the whole backbone, or fetch the file again"
    )
