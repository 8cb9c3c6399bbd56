"""Account for every tensor of a checkpoint: backbone, head, optimizer, or something else."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from torch import Tensor

from transfer.convert.architectures import BackboneError, is_optional
from transfer.convert.candidates import Candidate

HEAD = r"_*(fc|head|cls_head|classif|linear|logit|proj|pred|prototype|mlp|neck)\w*(\.|$)"
"""Pattern of a head (classifier, projector or predictor), right after the backbone's prefix."""

PYRAMID = r"fpn_?(lateral|output|inner|layer)\w*\."
"""Pattern of a feature pyramid inside an encoder (ReSim), right after the backbone's prefix.

It reads the maps of the ResNet and does not change them.
"""

OPTIMIZER = r"(^|[._])(optim\w*|(lr_)?schedulers?|grad_scaler|scaler|amp)([._]|$)"


@dataclass(frozen=True)
class Group:
    """Tensors of one kind below one prefix."""

    prefix: str
    kind: str
    """backbone, head, feature pyramid, another network (with its head), optimizer, or beside the
    backbone."""
    num_tensors: int
    num_values: int


def account(
    tensors: Mapping[str, Tensor],
    chosen: Candidate,
    others: Iterable[Candidate],
    opaque: Mapping[str, str],
    own: Iterable[str] = (),
    rest: str = "$^",
    heads: Collection[str] = (),
) -> tuple[Group, ...]:
    """Return groups that hold each tensor, of any shape, exactly once.

    BackboneError if a tensor with the backbone's prefix belongs neither to a network nor to a head,
    or if one of the objects that are not read (opaque) could be such a tensor. own: names of
    further tensors of the backbone, which it does not need. rest: pattern of parts inside it that
    its features do not depend on. heads: names of tensors known to be a head's.
    """
    backbone = {*chosen.names.values(), *own}
    copies = [other for other in others if not chosen.prefix.startswith(other.prefix)]
    groups: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    unexpected = []
    for name in tensors:
        if name in backbone:
            groups[chosen.prefix, "backbone"].append(name)
        elif name in heads:
            groups[_branch(name, chosen.prefix), "head"].append(name)
        elif (group := _group(name, chosen, copies, rest)) is None:
            unexpected.append(name)
        else:
            groups[group].append(name)
    unexpected += [
        f"{name} (an object of {path})"
        for name, path in opaque.items()
        if _could_be_in(chosen, name, path) and _group(name, chosen, copies, rest) is None
    ]
    if unexpected:
        raise BackboneError(
            f"{chosen} is complete, but {len(unexpected)} tensors below its prefix belong neither "
            f"to it nor to a head, first {', '.join(unexpected[:3])}: the network computes "
            f"something else than {chosen.arch}. Export the backbone alone, or name its network by "
            f"--encoder"
        )
    return tuple(
        Group(prefix, kind, len(names), sum(tensors[name].numel() for name in names))
        for (prefix, kind), names in groups.items()
    )


def _group(
    name: str, chosen: Candidate, copies: Iterable[Candidate], rest: str
) -> tuple[str, str] | None:
    """Return prefix and kind of a tensor that is not the backbone's; None if it is unexpected."""
    if copy := next((c.prefix for c in copies if name.startswith(c.prefix)), None):
        return copy, "another network"
    if re.search(OPTIMIZER, name):
        return _branch(name, chosen.prefix), "optimizer"
    inside = name.removeprefix(chosen.prefix)
    if not name.startswith(chosen.prefix) or re.search(rest, inside):
        return _branch(name, chosen.prefix), "beside the backbone"
    if any(re.match(HEAD, inside.removeprefix(part)) for part in ("", chosen.scheme.heads)):
        return _branch(name, chosen.prefix), "head"
    if re.match(PYRAMID, inside):
        return chosen.prefix + "fpn", "feature pyramid"
    return None


def _could_be_in(chosen: Candidate, name: str, path: str) -> bool:
    """Return whether an object that is not read could be a tensor of the network.

    Without a prefix, arguments and averages of the training stand among the network's modules.
    """
    if is_optional(name):
        return False
    modules = {own.removeprefix(chosen.prefix).split(".")[0] for own in chosen.names.values()}
    is_inside = chosen.prefix != "" or name.split(".")[0] in modules
    return is_inside or "_rebuild" in path


def _branch(name: str, prefix: str) -> str:
    """Return the shortest dotted start of `name` that is no start of `prefix`.

    prefix a.b., name a.c.d: a.c., the part of the file that the tensor belongs to.
    """
    branch = ""
    for word in name.split("."):
        branch += word
        if branch == name:
            return name
        branch += "."
        if not prefix.startswith(branch):
            return branch
    return branch
