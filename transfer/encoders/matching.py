"""Find a network in a file by the names and shapes of its tensors, and take their values.

A ResNet may have the names of several projects, another encoder has those of its library, and both
may have any prefix. Both are found, chosen, accounted for and read in the same way.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from transfer.encoders.architectures import FEATURE_DIM, BackboneError, Stem, network_words
from transfer.encoders.files import Contents
from transfer.encoders.naming import NAMES, SCHEMES, brief, is_optional
from transfer.encoders.resnets import tensor_shapes
from transfer.encoders.verify import plain_floats

MAX_COUNTERS = 1024
"""Largest step counter that is read; some files have one value per GPU."""
MAX_DOTS = 40
"""Most dots in the name of a network's tensor; each is a place where a prefix may end."""
MIN_NAMES = 20
"""Fewest matching names that make a prefix a candidate; the smallest ResNet has 100 tensors."""


@dataclass(frozen=True, eq=False)
class Plan:
    """Names and shapes that one network has in a file."""

    arch: str
    stem: Stem
    """Empty for an encoder that is not a ResNet."""
    scheme: str
    """Name of the scheme, or the encoder as the user named it."""
    tensors: Mapping[str, tuple[str, tuple[int, ...]]]
    """The network's name of each tensor -> the file's name without prefix, and the shape."""
    heads: str = ""
    """Prefix of a head's name next to the network, after the network's own prefix."""


@dataclass(frozen=True, eq=False)
class Match:
    """A plan at one prefix, complete or with flaws."""

    plan: Plan
    prefix: str
    names: Mapping[str, str]
    """The network's name -> the file's, for each tensor that fits."""
    flaws: Mapping[str, list[str]]
    """Names by what is wrong: missing, wrong shape, not read (another object is in its place),
    unexpected (of a deeper network, for example)."""

    @property
    def num_flaws(self) -> int:
        """Number of all flaws."""
        return sum(map(len, self.flaws.values()))

    @property
    def label(self) -> str:
        """The prefix for messages."""
        return self.prefix or "(no prefix)"

    @property
    def network(self) -> tuple[str, Stem]:
        """Architecture and stem."""
        return self.plan.arch, self.plan.stem

    def has(self, side: str) -> bool:
        """Return whether the prefix names this side of a method: momentum_side, teacher, ..."""
        return re.search(NAMES["sides"].get(side, side), self.prefix) is not None

    def __str__(self) -> str:
        return f"{self.label} ({network_words(*self.network)})"


@cache
def resnet_plans() -> tuple[Plan, ...]:
    """Return a plan for each scheme, architecture, and stem that shapes can show."""
    return tuple(
        Plan(
            arch,
            stem,
            scheme.name,
            {name: (scheme.rename(name), shape) for name, shape in shapes.items()},
            scheme.heads,
        )
        for scheme in SCHEMES
        for arch in FEATURE_DIM
        for stem in scheme.stems
        for shapes in [tensor_shapes(arch, stem)]
    )


def plan_of(built: Mapping[str, Tensor], asked: str) -> Plan:
    """Return the plan of another encoder, which a file stores under its library's names."""
    tensors = {name: (name, tuple(values.shape)) for name, values in built.items()}
    return Plan(asked, "", asked, tensors)  # type: ignore[arg-type]


def find(plans: Sequence[Plan], contents: Contents) -> list[Match]:
    """Return the best match of each scheme and prefix, in the order of the file."""
    entries: dict[str, Tensor | str] = {**contents.tensors, **contents.opaque}
    by_scheme: defaultdict[str, list[Plan]] = defaultdict(list)
    for plan in plans:
        by_scheme[plan.scheme].append(plan)
    known = {
        scheme: {theirs for plan in group for theirs, _ in plan.tensors.values()}
        for scheme, group in by_scheme.items()
    }
    votes: Counter[tuple[str, str]] = Counter()
    for name in entries:
        if name.count(".") <= MAX_DOTS:
            starts = [0, *(dot.end() for dot in re.finditer(r"\.", name))]
            for scheme, names in known.items():
                votes.update((scheme, name[:start]) for start in starts if name[start:] in names)
    min_votes = min(MIN_NAMES, *(max(1, len(plan.tensors) // 2) for plan in plans))
    found = []
    for (scheme, prefix), count in votes.items():
        if count >= min_votes:
            below = {name.removeprefix(prefix) for name in entries if name.startswith(prefix)}
            fits = (_fit(p, prefix, entries, below & known[scheme]) for p in by_scheme[scheme])
            found.append(min(fits, key=lambda match: match.num_flaws))
    return found


def _fit(plan: Plan, prefix: str, entries: Mapping[str, Tensor | str], below: set[str]) -> Match:
    """Return the match of a plan. below: known names under the prefix, which must be the plan's."""
    names: dict[str, str] = {}
    flaws: dict[str, list[str]] = {"missing": [], "wrong shape": [], "not read": []}
    unexpected = below - {theirs for theirs, _ in plan.tensors.values()}
    flaws["unexpected"] = sorted(prefix + name for name in unexpected)
    for own, (theirs, shape) in plan.tensors.items():
        name = prefix + theirs
        entry = entries.get(name)
        if isinstance(entry, Tensor) and (is_optional(own) or entry.shape == shape):
            names[own] = name
        elif is_optional(own):
            continue
        elif entry is None:
            flaws["missing"].append(name)
        elif isinstance(entry, str):
            flaws["not read"].append(f"{name}, an object of {entry} and not a plain tensor")
        else:
            flaws["wrong shape"].append(f"{name} {tuple(entry.shape)} instead of {shape}")
    return Match(plan, prefix, names, flaws)


def choose(found: list[Match], contents: Contents, asked: str, branch: str) -> tuple[Match, str]:
    """Return the network among the matches, and the reason for the choice.

    Names decide only between copies of one network: a query encoder and its momentum copy, or
    DINO's student and teacher. asked: the encoder as the user named it, empty for a ResNet. branch:
    prefix of the network, or a part of it, that the user named. BackboneError if no match is
    complete, or if several are and neither the branch nor a name decides.
    """
    if branch and found:
        chosen = _named(branch, found)
        if chosen.num_flaws:
            raise BackboneError(_refusal([chosen], contents, asked))
        return chosen, f"asked for by --checkpoint-key {branch}"
    complete = [match for match in found if match.num_flaws == 0]
    if not complete:
        raise BackboneError(_refusal(found, contents, asked))
    chosen, reason = _preferred(complete, contents.tensors)
    if chosen.has("teacher"):
        # the student of a distillation is what was trained; its teacher must not replace it
        same = any(match.has("student") and match.network == chosen.network for match in found)
        convolutions = (name for name, t in contents.tensors.items() if t.ndim == 4)
        student = next((name for name in convolutions if "student" in name), None)
        if student and not same:
            raise BackboneError(
                f"the only complete network is {chosen}, and the file also holds a student that is "
                f"another network (first {student}). If you mean the teacher, pass "
                "--checkpoint-key teacher"
            )
    elif chosen.has("momentum_side"):
        # a momentum copy must not silently replace a damaged query encoder
        damaged = [match for match in found if match.num_flaws and not match.has("momentum_side")]
        if damaged:
            raise BackboneError(_refusal(damaged, contents, asked))
    return chosen, reason


def _named(branch: str, found: list[Match]) -> Match:
    """Return the one match whose prefix is `branch`, or else contains it."""
    best: dict[str, Match] = {}  # several schemes may fit one prefix
    for match in sorted(found, key=lambda match: match.num_flaws):
        best.setdefault(match.prefix, match)
    equal = [m for m in best.values() if branch in (m.label, m.prefix.removesuffix("."))]
    named = equal or [match for match in best.values() if branch in match.label]
    if len(named) != 1:
        raise BackboneError(
            f"--checkpoint-key {branch} names {len(named) or 'none'} of them: the networks in the "
            "file are "
            f"{'; '.join(map(str, best.values()))}. Give a part of one prefix that no other has"
        )
    return named[0]


def _preferred(complete: list[Match], tensors: Mapping[str, Tensor]) -> tuple[Match, str]:
    if len(complete) == 1:
        return complete[0], "the only complete network in the file"
    one_network = len({match.network for match in complete}) == 1
    if one_network:
        teachers = [match for match in complete if match.has("teacher")]
        if len(teachers) == 1 and any(match.has("student") for match in complete):
            return teachers[0], "the teacher, which DINO's authors evaluate"
        online = [match for match in complete if not match.has("momentum_side")]
        if len(online) == 1:
            return online[0], "the query side, not its momentum copy"
        if online and all(_same_values(online[0], match, tensors) for match in online[1:]):
            return online[0], f"one network under {len(online)} names"
        query = [match for match in online if match.has("query_side")]
        if len(query) == 1:
            return query[0], "the query side"
    kinds = "" if one_network else " of different networks"
    raise BackboneError(
        f"{len(complete)} complete networks{kinds} are in the file, and no name tells the "
        f"backbone: {'; '.join(map(str, complete))}. Say which you mean by a part of "
        f"its prefix that no other has, such as --checkpoint-key "
        f"{complete[0].label.removesuffix('.')!r}"
    )


def _same_values(one: Match, other: Match, tensors: Mapping[str, Tensor]) -> bool:
    return all(
        torch.equal(tensors[name], tensors[other.names[own]])
        for own, name in one.names.items()
        if not is_optional(own)
    )


def _refusal(found: list[Match], contents: Contents, asked: str) -> str:
    """Return what the file holds instead of the complete network, and what to do."""
    tensors = contents.tensors
    if not asked:
        for row in NAMES["others"]:
            if other := next((name for name in tensors if re.search(row["names"], name)), None):
                return f"it holds {row['is']} ({other})"
    hidden = brief(dict.fromkeys(contents.opaque.values()))
    unread = f". Tensors in objects of other classes are not read: {hidden}" if hidden else ""
    vit = vit_sizes({name: tensor.shape for name, tensor in tensors.items()})
    if not found and asked:
        return (
            f"none of its {len(tensors)} tensors ({brief(tensors)}) has a name of {asked}: it is "
            f"{vit or 'another network, or another form of it'}{unread}"
        )
    if not found and vit:
        return (
            f"its {len(tensors)} tensors ({brief(tensors)}) are those of {vit}. A network other "
            f"than a ResNet is named by --encoder{unread}"
        )
    if not found:
        transformer = any(re.search("cls_token|pos_embed|patch_embed", name) for name in tensors)
        kind = "look like a Vision Transformer's" if transformer else "belong to no ResNet"
        return (
            f"its {len(tensors)} tensors ({brief(tensors)}) {kind}; expected the weights of one of "
            f"{', '.join(FEATURE_DIM)} below some prefix. Name another network by --encoder, such "
            f"as --encoder timm:vit_small_patch16_224.dino{unread}"
        )
    best = max(found, key=lambda match: len(match.names) - match.num_flaws)
    flaws = best.flaws
    names = [flaw.split(" ")[0] for group in flaws.values() for flaw in group]
    rows = (r["is"] for r in NAMES["advice"] if all(re.search(r["flaws"], n) for n in names))
    advice = next(rows, "It is another network, or not the complete one")
    planned = vit_sizes(dict(best.plan.tensors.values()))
    if flaws["not read"]:
        advice = (
            "Untrusted code is never executed. If you trust the source of the file, load it there "
            "and save plain tensors"
        )
    elif vit and planned and vit[:3] != planned[:3]:
        advice = f"Its shapes are those of {vit}"
    elif flaws["wrong shape"] and not asked:
        advice = (
            "Its shapes are those of another architecture. If a library has it, name it, such as "
            "--encoder timm:resnet50d.ra2_in1k"
        )
    listed = "; ".join(f"{kind} {brief(group)}" for kind, group in flaws.items() if group)
    nearest = (
        ""
        if asked
        else f"; nearest is {best.plan.arch} ({best.plan.stem} stem, {best.plan.scheme} names)"
    )
    return (
        f"no complete {asked or 'ResNet'}{nearest} under prefix {best.prefix!r}: {listed}. "
        f"{advice}{unread}"
    )


class ViTSizes(NamedTuple):
    """Sizes of a Vision Transformer."""

    width: int
    num_blocks: int
    patch_px: int
    image_px: int

    def __str__(self) -> str:
        """Return the network's name in words, and in timm if it has one."""
        kind = VITS.get(self[:2])
        words = f"patches of {self.patch_px} px for images of {self.image_px} px"
        if kind is None:
            return f"a ViT of width {self.width} with {self.num_blocks} blocks and {words}"
        words = f"a ViT-{kind.title()} with {words}"
        name = f"vit_{kind}_patch{self.patch_px}_{self.image_px}"
        with suppress(ImportError):
            from timm import is_model

            if is_model(name):
                words += f", such as --encoder timm:{name}"
        return words


VITS = {
    (192, 12): "tiny",
    (384, 12): "small",
    (768, 12): "base",
    (1024, 24): "large",
    (1280, 32): "huge",
}
"""Vision Transformers by width and number of blocks."""


def vit_sizes(shapes: Mapping[str, Sequence[int]]) -> ViTSizes | None:
    """Return the sizes of a Vision Transformer under timm's names; None if there is none.

    shapes: those of a file or network by the names of tensors, below any prefix.
    """
    patches = next((name for name in shapes if name.endswith("patch_embed.proj.weight")), "")
    prefix = patches.removesuffix("patch_embed.proj.weight")
    positions = shapes.get(f"{prefix}pos_embed", ())
    if not patches or len(shapes[patches]) != 4 or len(positions) != 3:
        return None
    width, _, _, patch_px = shapes[patches]
    numbers = (
        re.match(r"blocks\.(?:\d+\.)?(\d+)\.norm1\.", n.removeprefix(prefix)) for n in shapes
    )
    num_blocks = len({number[1] for number in numbers if number})
    side = math.isqrt(positions[1])  # a class token and registers do not make it larger
    return ViTSizes(width, num_blocks, patch_px, side * patch_px)


def account(
    match: Match, found: Iterable[Match], contents: Contents, heads: Collection[str] = ()
) -> Counter[str]:
    """Return the number of tensors by kind; each tensor of the file is counted once.

    BackboneError if a tensor with the network's prefix is neither the network's own nor a known
    part that does not change its features. heads: further names that belong to a head.
    """
    own = set(match.names.values())
    copies = [m.prefix for m in found if not (m.num_flaws or match.prefix.startswith(m.prefix))]
    modules = {name.removeprefix(match.prefix).split(".")[0] for name in own}
    kinds: Counter[str] = Counter()
    unexpected = []
    for name in contents.tensors:
        if kind := "head" if name in heads else _kind(name, match, own, copies):
            kinds[kind] += 1
        else:
            unexpected.append(name)
    for name, path in contents.opaque.items():
        # without a prefix, arguments and logs are among the network's modules
        is_inside = match.prefix or name.split(".")[0] in modules or "_rebuild" in path
        if is_inside and not _kind(name, match, own, copies):
            unexpected.append(f"{name} (an object of {path})")
    if unexpected:
        raise BackboneError(
            f"{match} is complete, but these tensors below its prefix belong neither to it nor to "
            f"a head: {brief(unexpected)}. The network computes something else than "
            f"{match.plan.arch}. Export it alone, or name its network by --encoder"
        )
    return kinds


def _kind(name: str, match: Match, own: set[str], copies: list[str]) -> str:
    """Return the kind of a tensor; empty if it is unexpected."""
    if name in own:
        return "backbone"
    if any(name.startswith(copy) for copy in copies):
        return "another network"
    if re.search(NAMES["optimizer"], name):
        return "optimizer"
    if not name.startswith(match.prefix):
        return "beside the backbone"
    inside = name.removeprefix(match.prefix)
    for kind, pattern in NAMES["parts"].items():
        if any(re.match(pattern, inside.removeprefix(head)) for head in ("", match.plan.heads)):
            return str(kind)
    return "backbone" if is_optional(name) and not match.plan.stem else ""


def weights_of(match: Match, contents: Contents, built: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the file's values of all tensors of the network, in its order, floats as float32.

    built: the network's tensors, whose values are used for those that may be missing; on the meta
    device if they have none. BackboneError for values that are not finite.
    """
    weights = {}
    for own, before in built.items():
        name = match.names.get(own, "")
        if name and before.is_floating_point():
            weights[own] = plain_floats(name, contents.tensors[name])
        elif before.is_meta:  # a step counter of a ResNet
            weights[own] = torch.tensor(_first_count(contents.tensors.get(name)))
        else:
            is_counter = own.endswith("num_batches_tracked")
            if (
                name
                and not is_counter
                and not contents.tensors[name].to(before.dtype).equal(before)
            ):
                raise BackboneError(f"{name} is not the table that the network's sizes give")
            weights[own] = before.clone()
    return weights


def _first_count(tensor: Tensor | None) -> int:
    """Return the first value of a step counter of any shape and type; otherwise 0."""
    if tensor is None or not 0 < tensor.numel() <= MAX_COUNTERS or tensor.is_complex():
        return 0
    first: float = tensor[(0,) * tensor.ndim].item()
    return int(first) if math.isfinite(first) and 0 <= first < 2**63 else 0
