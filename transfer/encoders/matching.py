"""Find a network in a file's tensors and read its weights.

A ResNet may use the tensor names of several projects, another encoder uses the names of its
library, and both may have any prefix. The same functions handle both.
"""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass
from functools import cache

import torch
from torch import Tensor

from transfer.encoders.architectures import (
    FEATURE_DIM,
    BackboneError,
    Stem,
    network_words,
    tensor_shapes,
)
from transfer.encoders.files import Contents
from transfer.encoders.naming import NAMES, SCHEMES, brief, is_optional
from transfer.encoders.verify import to_finite_float32

MIN_NAMES = 20
"""Minimum number of matching names per prefix (the smallest ResNet: 100 tensors)."""


@dataclass(frozen=True, eq=False)
class Plan:
    """Names and shapes of one network's tensors in a file."""

    arch: str
    stem: Stem
    """Both are empty for an encoder that is not a ResNet."""
    scheme: str
    """Name of the scheme, or the encoder as the user named it."""
    tensors: Mapping[str, tuple[str, tuple[int, ...]]]
    """Name in the network -> (name in the file without prefix, shape)."""
    heads: str = ""
    """Prefix of a head next to the network, without the network's prefix."""


@dataclass(frozen=True, eq=False)
class Match:
    """A plan at one prefix, complete or with flaws."""

    plan: Plan
    prefix: str
    names: Mapping[str, str]
    """Name in the network -> name in the file, for fitting tensors."""
    flaws: Mapping[str, list[str]]
    """Names by flaw: missing, wrong shape, not read, unexpected.

    "not read": an object instead of a tensor. "unexpected": of a deeper network, for example.
    """

    @property
    def num_flaws(self) -> int:
        """Total number of flaws."""
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
        """Return whether the prefix contains this branch name.

        side: momentum_side, teacher, ...
        """
        return re.search(NAMES["sides"].get(side, side), self.prefix) is not None

    def __str__(self) -> str:
        return f"{self.label} ({network_words(*self.network)})"


@cache
def resnet_plans() -> tuple[Plan, ...]:
    """Return a plan for each scheme, architecture and stem.

    Stems that have the same shapes share a plan.
    """
    return tuple(
        Plan(
            arch,
            stem,
            scheme.name,
            {name: (rename(name), shape) for name, shape in shapes.items()},
            scheme.heads,
        )
        for scheme in SCHEMES
        for rename in [cache(scheme.rename)]  # networks have most names in common
        for arch in FEATURE_DIM
        for stem in scheme.stems
        for shapes in [tensor_shapes(arch, stem)]
    )


def plan_of(built: Mapping[str, Tensor], encoder: str) -> Plan:
    """Return the plan of a network under its library's names."""
    tensors = {name: (name, tuple(values.shape)) for name, values in built.items()}
    return Plan(encoder, "", encoder, tensors)  # type: ignore[arg-type]


def find(plans: Sequence[Plan], contents: Contents) -> list[Match]:
    """Return the best match per scheme and prefix."""
    entries: dict[str, Tensor | str] = {**contents.tensors, **contents.opaque}
    by_scheme: defaultdict[str, list[Plan]] = defaultdict(list)
    for plan in plans:
        by_scheme[plan.scheme].append(plan)
    min_votes = min(MIN_NAMES, *(max(1, len(plan.tensors) // 2) for plan in plans))
    matches = []
    for group in by_scheme.values():
        names = {file_name for plan in group for file_name, _ in plan.tensors.values()}
        votes = Counter(
            name[:start]
            for name in entries
            for start in [0, *(dot.end() for dot in re.finditer(r"\.", name))]
            if name[start:] in names
        )
        for prefix in [prefix for prefix, count in votes.items() if count >= min_votes]:
            under_prefix = {n.removeprefix(prefix) for n in entries if n.startswith(prefix)}
            fits = (fit(plan, prefix, entries, under_prefix & names) for plan in group)
            matches.append(min(fits, key=lambda match: match.num_flaws))
    return matches


def fit(
    plan: Plan,
    prefix: str,
    entries: Mapping[str, Tensor | str],
    names_under_prefix: Set[str] = frozenset(),
) -> Match:
    """Return the match of a plan at a prefix.

    names_under_prefix: names of the scheme that the file has under the prefix. Those that are not
    in the plan are flaws.
    """
    names: dict[str, str] = {}
    flaws: dict[str, list[str]] = {"missing": [], "wrong shape": [], "not read": []}
    unexpected = names_under_prefix - {file_name for file_name, _ in plan.tensors.values()}
    flaws["unexpected"] = sorted(prefix + name for name in unexpected)
    for network_name, (file_name, shape) in plan.tensors.items():
        name = prefix + file_name
        entry = entries.get(name)
        if isinstance(entry, Tensor) and (entry.shape == shape or is_optional(network_name)):
            names[network_name] = name
        elif is_optional(network_name):
            continue
        elif entry is None:
            flaws["missing"].append(name)
        elif isinstance(entry, str):
            flaws["not read"].append(f"{name}, an object of {entry} and not a plain tensor")
        else:
            flaws["wrong shape"].append(f"{name} {tuple(entry.shape)} instead of {shape}")
    return Match(plan, prefix, names, flaws)


def choose(
    matches: list[Match], contents: Contents, encoder: str, branch: str
) -> tuple[Match, str]:
    """Return the network to use among the matches, and the reason.

    Names decide only between copies of one network: a query encoder and its momentum copy, or
    DINO's student and teacher.

    encoder: the user's name of the encoder, empty for a ResNet. branch: the user's choice, a prefix
    or a part of one.

    Raises BackboneError if no match is complete, or if several are complete and neither the branch
    nor a name decides.
    """
    if branch and matches:
        match = _named(branch, matches)
        if match.num_flaws:
            raise BackboneError(_refusal([match], contents, encoder))
        return match, f"selected by --checkpoint-key {branch}"
    complete = [m for m in matches if m.num_flaws == 0]
    if not complete:
        raise BackboneError(_refusal(matches, contents, encoder))
    match, reason = _preferred(complete, contents.tensors)
    if match.has("teacher"):
        # distillation trains the student; its teacher must not replace it
        same = any(m.has("student") and m.network == match.network for m in matches)
        convolutions = (name for name, t in contents.tensors.items() if t.ndim == 4)
        student = next((name for name in convolutions if "student" in name), None)
        if student and not same:
            raise BackboneError(
                f"the only complete network is {match}, and the student is another network (first "
                f"tensor: {student}). To use the teacher, pass --checkpoint-key teacher"
            )
    elif match.has("momentum_side"):
        # a momentum copy must not silently replace a damaged query encoder
        damaged = [m for m in matches if m.num_flaws and not m.has("momentum_side")]
        if damaged:
            raise BackboneError(_refusal(damaged, contents, encoder))
    return match, reason


def _named(branch: str, matches: list[Match]) -> Match:
    """Return the match with this prefix, or the only prefix containing it."""
    best: dict[str, Match] = {}  # several schemes may fit one prefix
    for match in sorted(matches, key=lambda match: match.num_flaws):
        best.setdefault(match.prefix, match)
    exact = [m for m in best.values() if branch in (m.label, m.prefix.removesuffix("."))]
    selected = exact or [match for match in best.values() if branch in match.label]
    if len(selected) != 1:
        networks = "; ".join(map(str, best.values()))
        raise BackboneError(f"--checkpoint-key {branch} is not in exactly one prefix of {networks}")
    return selected[0]


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
            return online[0], "the query encoder, not its momentum copy"
        if online and all(_same_values(online[0], match, tensors) for match in online[1:]):
            return online[0], f"one network under {len(online)} names"
        query = [match for match in online if match.has("query_side")]
        if len(query) == 1:
            return query[0], "the query encoder"
    raise BackboneError(
        f"the file has {len(complete)} complete networks: {'; '.join(map(str, complete))}. Select "
        f"one by its prefix, such as --checkpoint-key {complete[0].label.removesuffix('.')!r}"
    )


def _same_values(first: Match, second: Match, tensors: Mapping[str, Tensor]) -> bool:
    return all(
        torch.equal(tensors[name], tensors[second.names[network_name]])
        for network_name, name in first.names.items()
        if not is_optional(network_name)
    )


def _refusal(matches: list[Match], contents: Contents, encoder: str) -> str:
    """Return an error message: the contents of the file, the next step."""
    tensors = contents.tensors
    for row in NAMES["others"] if not encoder else ():
        if example := next((name for name in tensors if re.search(row["names"], name)), None):
            return f"it contains {row['is']} ({example})"
    hidden = brief(dict.fromkeys(contents.opaque.values()))
    unread = f". Tensors in objects of other classes are not read: {hidden}" if hidden else ""
    vit = vit_description({name: tensor.shape for name, tensor in tensors.items()})
    contained = f"its {len(tensors)} tensors ({brief(tensors)})"
    if not matches and encoder:
        return f"{contained} have no name of {encoder}: it is {vit or 'another network'}{unread}"
    if not matches:
        return (
            f"{contained} belong to {vit or 'no ResNet'}. Expected is one of "
            f"{', '.join(FEATURE_DIM)} under any prefix. Select another network with --encoder"
            f"{'' if vit else ', such as --encoder timm:vit_small_patch16_224.dino'}{unread}"
        )
    best = max(matches, key=lambda match: len(match.names) - match.num_flaws)
    flaws = best.flaws
    names = [flaw.split(" ")[0] for group in flaws.values() for flaw in group]
    rows = (r["is"] for r in NAMES["advice"] if all(re.search(r["flaws"], n) for n in names))
    advice = next(rows, "")
    if flaws["not read"]:
        advice = "Untrusted code is never executed: save plain tensors where the file was made"
    elif vit and vit != vit_description(dict(best.plan.tensors.values())):
        advice = f"Its shapes match {vit}. {advice}".removesuffix(". ")
    elif flaws["wrong shape"] and not encoder:
        advice = "If a library has this architecture, select it, such as --encoder timm:resnet50d"
    advice = advice or "It is another network, or an incomplete one"
    listed = "; ".join(f"{kind} {brief(group)}" for kind, group in flaws.items() if group)
    if not encoder:
        network = f"ResNet; closest is {best.plan.arch} ({best.plan.stem} stem, {best.plan.scheme} "
        network += "names)"
    return (
        f"no complete {encoder or network} under prefix {best.prefix!r}: {listed}. {advice}{unread}"
    )


VIT_NAMES = {192: "tiny", 384: "small", 768: "base", 1024: "large", 1280: "huge"}
"""Vision Transformers by width."""


def vit_description(shapes: Mapping[str, Sequence[int]]) -> str:
    """Return the sizes of a Vision Transformer, with its name in timm if it exists.

    shapes: shape of each tensor by its name in a file or network, in timm's naming under any
    prefix. Empty if the tensors do not belong to a Vision Transformer.
    """
    patches = next((name for name in shapes if name.endswith("patch_embed.proj.weight")), "")
    positions = shapes.get(f"{patches.removesuffix('patch_embed.proj.weight')}pos_embed", ())
    if not patches or len(shapes[patches]) != 4 or len(positions) != 3:
        return ""
    width, _, _, patch_px = shapes[patches]
    # class and register tokens do not change the rounded root
    image_px = math.isqrt(positions[1]) * patch_px
    kind = VIT_NAMES.get(width)
    text = f"a ViT-{kind.title()}" if kind else f"a ViT of width {width}"
    text += f" with patches of {patch_px} px for images of {image_px} px"
    name = f"vit_{kind}_patch{patch_px}_{image_px}"
    with suppress(ImportError):
        from timm import is_model

        if is_model(name):
            text += f", such as --encoder timm:{name}"
    return text


def count_tensor_kinds(
    match: Match, matches: Iterable[Match], contents: Contents, head_names: Collection[str] = ()
) -> Counter[str]:
    """Return the number of tensors by kind; each tensor is counted once.

    head_names: further names that belong to a head.

    Raises BackboneError if an unknown tensor has the network's prefix: neither part of the network
    nor of a known module that leaves its features unchanged.
    """
    file_names = set(match.names.values())
    copies = [m.prefix for m in matches if not (m.num_flaws or match.prefix.startswith(m.prefix))]
    modules = {name.removeprefix(match.prefix).split(".")[0] for name in file_names}
    kinds: Counter[str] = Counter()
    unexpected = []
    for name in contents.tensors:
        kind = "head" if name in head_names else _kind(name, match, file_names, copies, modules)
        if kind:
            kinds[kind] += 1
        else:
            unexpected.append(name)
    for name, path in contents.opaque.items():
        # without a prefix, arguments and logs are among the network's modules
        is_inside = match.prefix or name.split(".")[0] in modules or "_rebuild" in path
        if is_inside and not _kind(name, match, file_names, copies, modules):
            unexpected.append(f"{name} (an object of {path})")
    if unexpected:
        raise BackboneError(
            f"{match} is complete, but belongs to a larger network, with {brief(unexpected)}. "
            f"Export the backbone alone, or select its network with --encoder"
        )
    return kinds


def _kind(
    name: str, match: Match, file_names: set[str], copies: list[str], modules: set[str]
) -> str:
    """Return the kind of a tensor (names.yaml); empty if it is unexpected.

    modules: first parts of the names of the network's own modules. They hold no optimizer.
    """
    if name in file_names:
        return "backbone"
    if any(name.startswith(copy) for copy in copies):
        return "another network"
    inside = name.removeprefix(match.prefix)
    is_outside = not name.startswith(match.prefix)
    if re.search(NAMES["optimizer"], name) and (is_outside or inside.split(".")[0] not in modules):
        return "optimizer"
    if is_outside:
        return "outside the backbone"
    for kind, pattern in NAMES["parts"].items():
        if any(re.match(pattern, inside.removeprefix(head)) for head in ("", match.plan.heads)):
            return str(kind)
    return "backbone" if is_optional(name) and not match.plan.stem else ""


def weights_of(match: Match, contents: Contents, built: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the network's weights from the file, in the network's order.

    Floating-point values are converted to float32. built: the network's tensors. Their values
    replace missing optional tensors; they are on the meta device if they have no values.
    Raises BackboneError for values that are not finite.
    """
    weights = {}
    for network_name, value in built.items():
        name = match.names.get(network_name, "")
        if name and value.is_floating_point():
            weights[network_name] = to_finite_float32(name, contents.tensors[name])
        elif value.is_meta:  # a step counter of a ResNet
            weights[network_name] = torch.tensor(_first_count(contents.tensors.get(name)))
        else:
            is_counter = network_name.endswith("num_batches_tracked")
            if name and not is_counter and not contents.tensors[name].to(value.dtype).equal(value):
                raise BackboneError(f"{name} differs from the table that the network's sizes give")
            weights[network_name] = value.clone()
    return weights


def _first_count(tensor: Tensor | None) -> int:
    """Return the first value of a step counter, which may have a value per GPU.

    0 if it is missing or unreadable.
    """
    if tensor is None or not tensor.numel() or tensor.is_complex():
        return 0
    first: float = tensor[(0,) * tensor.ndim].item()
    return int(first) if math.isfinite(first) and 0 <= first < 2**63 else 0
