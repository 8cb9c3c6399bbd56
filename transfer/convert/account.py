"""Account for every tensor of a checkpoint: backbone, head, optimizer, or something else."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from transfer.convert.architectures import BackboneError, is_optional
from transfer.convert.candidates import Candidate
from transfer.convert.read_file import Opaque, StoredTensor

HEAD = r"(fc|head|cls_head|classif|linear|logit|proj|pred|prototype|mlp|neck)\w*(\.|$)"
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
    """backbone, head, feature pyramid, another ResNet (with its head), optimizer, or beside the
    backbone."""
    num_tensors: int
    num_values: int


def account(
    tensors: Mapping[str, StoredTensor],
    chosen: Candidate,
    others: Iterable[Candidate],
    opaque: Mapping[str, Opaque] | None = None,
) -> tuple[Group, ...]:
    """Return groups that hold each tensor, of any shape, exactly once.

    BackboneError if a tensor with the backbone's prefix belongs neither to a ResNet nor to a head,
    or if one of the objects that are not read (opaque) could be such a tensor.
    """
    backbone = set(chosen.names.values())
    copies = [other for other in others if not chosen.prefix.startswith(other.prefix)]
    groups: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    unexpected = []
    for name in tensors:
        group = (chosen.prefix, "backbone") if name in backbone else _group(name, chosen, copies)
        if group is None:
            unexpected.append(name)
        else:
            groups[group].append(name)
    unexpected += [
        f"{name} ({thing})"
        for name, thing in (opaque or {}).items()
        if _could_be_in(chosen, name, thing) and _group(name, chosen, copies) is None
    ]
    if unexpected:
        raise BackboneError(
            f"{chosen} is complete, but {len(unexpected)} tensors below its prefix belong neither "
            f"to it nor to a head, first {', '.join(unexpected[:3])}: the network computes "
            f"something else than a torchvision {chosen.arch}. Export the ResNet alone"
        )
    return tuple(
        Group(prefix, kind, len(names), sum(tensors[name].num_values for name in names))
        for (prefix, kind), names in groups.items()
    )


def _group(name: str, chosen: Candidate, copies: Iterable[Candidate]) -> tuple[str, str] | None:
    """Return prefix and kind of a tensor that is not the backbone's; None if it is unexpected."""
    if copy := next((c.prefix for c in copies if name.startswith(c.prefix)), None):
        return copy, "another ResNet"
    if re.search(OPTIMIZER, name):
        return _branch(name, chosen.prefix), "optimizer"
    if not name.startswith(chosen.prefix):
        return _branch(name, chosen.prefix), "beside the backbone"
    if _is_head(name.removeprefix(chosen.prefix), chosen):
        return _branch(name, chosen.prefix), "head"
    if re.match(PYRAMID, name.removeprefix(chosen.prefix)):
        return chosen.prefix + "fpn", "feature pyramid"
    return None


def _could_be_in(chosen: Candidate, name: str, thing: Opaque) -> bool:
    """Return whether an object that is not read could be a tensor of the network.

    Without a prefix, arguments and averages of the training stand among the network's modules.
    """
    if is_optional(name):
        return False
    modules = {own.removeprefix(chosen.prefix).split(".")[0] for own in chosen.names.values()}
    is_inside = chosen.prefix != "" or name.split(".")[0] in modules
    return thing.rebuilds_tensor or (thing.holds_numbers and is_inside)


def _is_head(name: str, chosen: Candidate) -> bool:
    """Return whether the tensor, named without the backbone's prefix, belongs to a head."""
    return any(re.match(HEAD, name.removeprefix(prefix)) for prefix in ("", chosen.scheme.heads))


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
