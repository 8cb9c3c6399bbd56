"""A file's tensors in the network of an encoder: every one placed, counted and read bit for bit."""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from transfer.convert.account import Group, account
from transfer.convert.architectures import BackboneError, is_optional
from transfer.convert.candidates import Candidate, fit
from transfer.convert.choice import MOMENTUM_SIDE, choose
from transfer.convert.files import Contents
from transfer.convert.layouts import SCHEMES
from transfer.convert.messages import list_briefly
from transfer.convert.proof import plain_floats

CONSTANT = r"(^|\.)(relative_position_index|relative_coords_table|attn_mask|position_ids)$"
"""Buffers that follow from the sizes of a network; some versions of a library store them."""
REST = r"(^|\.)(mask_token|decoder\w*|pooler|momentum\w*|aux\d|AuxLogits)(\.|$)"
"""Parts of a training that are inside an encoder and do not take part in its features."""
ONCE = 0.5
"""Share of a network's names below a prefix that makes it a candidate."""


@dataclass(frozen=True, kw_only=True)
class Placed:
    """The weights of an encoder, and where every tensor of the file belongs."""

    state_dict: dict[str, Tensor]
    prefix: str
    choice: str
    account: tuple[Group, ...]
    notes: tuple[str, ...]
    num_placed: int
    """Tensors of the network that come from the file."""


def place(
    built: Mapping[str, Tensor],
    contents: Contents,
    asked: str,
    branch: str,
    left_out: Collection[str] = (),
) -> Placed:
    """Return the file's tensors under the network's names.

    built: the network's tensors with any values. asked: its name for messages. branch: prefix, or a
    part of it, where the file holds several. left_out: names of modules that compute nothing in the
    network; a linear layer of the file in the place of one is a head. BackboneError if a tensor is
    missing, misshapen or not finite, or stands below the network's prefix without being a head or
    another named part.
    """
    tensors = contents.tensors
    wanted = {name: values for name, values in built.items() if not _free(name)}
    votes: Counter[str] = Counter()
    for name in tensors:
        starts = [0, *(dot.end() for dot in re.finditer(r"\.", name))]
        votes.update(name[:start] for start in starts if name[start:] in wanted)
    layers = {name: (name, tuple(values.shape)) for name, values in wanted.items()}
    found = [
        Candidate(SCHEMES[0], prefix, asked, "", *fit(prefix, layers, tensors))  # type: ignore[arg-type]
        for prefix, _ in votes.most_common(20)
    ]
    complete = [candidate for candidate in found if not candidate.num_flaws]
    if not complete:
        raise BackboneError(_refusal(asked, wanted, tensors, found))
    chosen, choice = choose(complete, tensors, branch)
    damaged = [c for c in found if c.num_flaws and votes[c.prefix] > ONCE * len(wanted)]
    if chosen.has(MOMENTUM_SIDE) and damaged and not branch:
        raise BackboneError(
            f"the only complete {asked} is the momentum copy below {chosen.prefix!r}; below "
            f"{damaged[0].prefix!r} is {'; '.join(_flaws(damaged[0])[:3])}"
        )
    state_dict = {
        name: _read(chosen.prefix + name, tensors, values) for name, values in built.items()
    }
    others = [candidate for candidate in complete if candidate.prefix != chosen.prefix]
    own = [n for n in tensors if n.startswith(chosen.prefix) and _free(n[len(chosen.prefix) :])]
    heads = [
        f"{chosen.prefix}{module}.{kind}"
        for module in left_out
        for kind in ("weight", "bias")
        if getattr(tensors.get(f"{chosen.prefix}{module}.weight"), "ndim", 0) == 2
    ]
    return Placed(
        state_dict=state_dict,
        prefix=chosen.prefix,
        choice=choice,
        account=account(tensors, chosen, others, {}, own, REST, heads),
        notes=tuple(_notes(chosen, tensors, built)),
        num_placed=sum(chosen.prefix + name in tensors for name in built),
    )


def _free(name: str) -> bool:
    """Return whether a tensor may be missing: a step counter, or what follows from sizes."""
    return is_optional(name) or re.search(CONSTANT, name) is not None


def _flaws(candidate: Candidate) -> list[str]:
    """Return what keeps the tensors below a prefix from being the network, a phrase each."""
    missing = [f"{name} is missing" for name in candidate.flaws["missing"]]
    return missing + candidate.flaws["wrong shape"]


def _refusal(
    asked: str,
    wanted: Mapping[str, Tensor],
    tensors: Mapping[str, Tensor],
    found: list[Candidate],
) -> str:
    """Return what was found instead of the network, and what to do."""
    if not found:
        return (
            f"none of its {len(tensors)} tensors ({list_briefly(tensors)}) has a name of "
            f"{asked}, such as {list_briefly(wanted)}: it is another network, or another library's "
            "form of it"
        )
    best = min(found, key=lambda candidate: candidate.num_flaws)
    told = _flaws(best)
    advice = "It is another network, or not the whole one"
    if all(re.search("pos(ition)?_embed", flaw) for flaw in told):
        advice = (
            "Position embeddings belong to one size of image and are not interpolated, since that "
            "makes another network: give the size that the file was trained on as --input-px, or "
            "name the network with as many register tokens"
        )
    elif any(".qkv.bias" in flaw for flaw in told):
        advice = "The file's attention has no bias: name a network without one (qkv_bias=False)"
    return (
        f"no complete {asked}; below {best.prefix!r} {len(wanted) - len(told)} of {len(wanted)} "
        f"tensors fit: {'; '.join(told[:3])}{' and more' * (len(told) > 3)}. {advice}"
    )


def _read(name: str, tensors: Mapping[str, Tensor], built: Tensor) -> Tensor:
    """Return the file's tensor, or the built one where only sizes or a counter are missing."""
    if name not in tensors:
        return built.clone()
    if built.is_floating_point():
        return plain_floats(name, tensors[name])
    values = tensors[name]
    if not is_optional(name) and not torch.equal(values.to(built.dtype), built):
        raise BackboneError(f"{name} is not the table that the network's sizes give")
    return built.clone()


def _notes(
    chosen: Candidate, tensors: Mapping[str, Tensor], built: Mapping[str, Tensor]
) -> Iterable[str]:
    dtypes = {tensors[name].dtype for name in chosen.names.values()}
    if cast := dtypes - {torch.float32}:
        yield f"cast to float32 from {', '.join(sorted(map(str, cast)))}"
    absent = [name for name in built if chosen.prefix + name not in tensors]
    if absent:
        yield f"computed from the network's sizes, not in the file: {list_briefly(absent)}"
