"""Account for every tensor of a checkpoint: backbone, head, optimizer, or something else."""

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from transfer.convert.architectures import BackboneError
from transfer.convert.candidates import Candidate
from transfer.convert.safe_pickle import StoredTensor

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
    tensors: Mapping[str, StoredTensor], chosen: Candidate, others: Iterable[Candidate]
) -> tuple[Group, ...]:
    """Return groups that hold each tensor, of any shape, exactly once.

    BackboneError if a tensor with the backbone's prefix belongs neither to a ResNet nor to a head.
    """
    backbone = set(chosen.names.values())
    copies = [other for other in others if not chosen.prefix.startswith(other.prefix)]
    groups: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
    unexpected = []
    for name in tensors:
        below = name.startswith(chosen.prefix)
        if name in backbone:
            groups[chosen.prefix, "backbone"].append(name)
        elif copy := next((c.prefix for c in copies if name.startswith(c.prefix)), None):
            groups[copy, "another ResNet"].append(name)
        elif re.search(OPTIMIZER, name):
            groups[_branch(name, chosen.prefix), "optimizer"].append(name)
        elif below and _is_head(name.removeprefix(chosen.prefix), chosen):
            groups[_branch(name, chosen.prefix), "head"].append(name)
        elif below and re.match(PYRAMID, name.removeprefix(chosen.prefix)):
            groups[chosen.prefix + "fpn", "feature pyramid"].append(name)
        elif below:
            unexpected.append(name)
        else:
            groups[_branch(name, chosen.prefix), "beside the backbone"].append(name)
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
