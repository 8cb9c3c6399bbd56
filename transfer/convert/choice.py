"""Choose the backbone among the ResNets of a file, or say what to do.

Names decide between copies of one network only: a query encoder and its momentum copy, or DINO's
student and teacher. Networks of different kinds are never chosen by their names; the user says
which is meant.
"""

import re
from collections.abc import Mapping

import torch
from torch import Tensor

from transfer.convert.architectures import FEATURE_DIM, BackboneError, is_optional
from transfer.convert.candidates import Candidate
from transfer.convert.layouts import NAMES
from transfer.convert.messages import list_briefly

MOMENTUM_SIDE = (
    r"encoder_k|key_encoder|momentum|moco_encoder|target|teacher|(^|[._])ema([._]|$)|_k\."
)
QUERY_SIDE = r"encoder_q|base_encoder|query|online|student"


def choose(
    candidates: list[Candidate], tensors: Mapping[str, Tensor], branch: str = ""
) -> tuple[Candidate, str]:
    """Return the backbone among the candidates, and the reason for the choice.

    branch: the prefix of the candidate that the user asked for, or a part of it. A complete
    candidate has every name, in its shape. BackboneError if none is complete, or if several are
    and neither the branch nor a name says which is the backbone.
    """
    if branch and candidates:
        chosen, reason = _named(branch, candidates), f"asked for by --branch {branch}"
        if chosen.num_flaws:
            raise BackboneError(_refusal([chosen], tensors))
    else:
        complete = [candidate for candidate in candidates if candidate.num_flaws == 0]
        if not complete:
            raise BackboneError(_refusal(candidates, tensors))
        chosen, reason = _prefer(complete, tensors)
        _check_other_side(chosen, candidates, tensors)
    return chosen, reason


def _named(branch: str, candidates: list[Candidate]) -> Candidate:
    """Return the one candidate whose prefix is `branch`, or else contains it."""
    # the same tensors may fit several schemes, one of them best
    best: dict[str, Candidate] = {}
    for candidate in sorted(candidates, key=lambda candidate: candidate.num_flaws):
        best.setdefault(candidate.prefix, candidate)
    whole = [c for c in best.values() if branch in (c.label, c.prefix.removesuffix("."))]
    named = whole or [c for c in best.values() if branch in c.label]
    if len(named) != 1:
        raise BackboneError(
            f"--branch {branch} names {len(named) or 'none'} of them: the networks in the file are "
            f"{'; '.join(map(str, best.values()))}. Give a part of one prefix that no other has"
        )
    return named[0]


def _check_other_side(
    chosen: Candidate, candidates: list[Candidate], tensors: Mapping[str, Tensor]
) -> None:
    """Raise BackboneError if the chosen network stands in for another one that is damaged."""
    if not chosen.has(MOMENTUM_SIDE):
        return
    if not chosen.has("teacher"):
        # if the query encoder is damaged, the momentum copy must not silently replace it
        damaged = [c for c in candidates if c.num_flaws and not c.has(MOMENTUM_SIDE)]
        if damaged:
            raise BackboneError(_refusal(damaged, tensors))
    elif not any(c.has("student") and c.network == chosen.network for c in candidates):
        # the student of a distillation is what was trained; its teacher must not replace it
        convolutions = (name for name, tensor in tensors.items() if len(tensor.shape) == 4)
        student = next((name for name in convolutions if re.search("student", name)), None)
        if student is not None:
            raise BackboneError(
                f"the only complete network is {chosen}, and a student of another network stands "
                f"beside it (first {student}). If you mean the teacher, say --branch teacher"
            )


def _prefer(complete: list[Candidate], tensors: Mapping[str, Tensor]) -> tuple[Candidate, str]:
    if len(complete) == 1:
        return complete[0], "the only complete network in the file"
    one_network = len({candidate.network for candidate in complete}) == 1
    teachers = [candidate for candidate in complete if candidate.has("teacher")]
    students = [candidate for candidate in complete if candidate.has("student")]
    if one_network and len(teachers) == 1 and students:
        return teachers[0], "the teacher, which DINO's authors evaluate"
    online = [candidate for candidate in complete if not candidate.has(MOMENTUM_SIDE)]
    if one_network and len(online) == 1:
        return online[0], "the query side, not its momentum copy"
    if one_network and online and all(_same_values(online[0], c, tensors) for c in online[1:]):
        return online[0], f"one network under {len(online)} names"
    query = [candidate for candidate in online if candidate.has(QUERY_SIDE)]
    if one_network and len(query) == 1:
        return query[0], "the query side"
    kinds = "" if one_network else " of different networks"
    raise BackboneError(
        f"{len(complete)} complete networks{kinds} are in the file, and no name tells the "
        f"backbone: {'; '.join(map(str, complete))}. Say which you mean by a part of "
        f"its prefix that no other has, such as --branch {complete[0].label.removesuffix('.')!r}"
    )


def _same_values(one: Candidate, other: Candidate, tensors: Mapping[str, Tensor]) -> bool:
    return all(
        torch.equal(tensors[name], tensors[other.names[key]])
        for key, name in one.names.items()
        if not is_optional(name)
    )


def _refusal(candidates: list[Candidate], tensors: Mapping[str, Tensor]) -> str:
    """Return a message that says what was found instead of a complete ResNet."""
    for row in NAMES["others"]:
        if other := next((name for name in tensors if re.search(row["names"], name)), None):
            return f"it holds {row['is']} ({other})"
    if not candidates:
        transformer = any(re.search("cls_token|pos_embed|patch_embed", name) for name in tensors)
        kind = "look like a Vision Transformer's" if transformer else "belong to no ResNet"
        return (
            f"its {len(tensors)} tensors ({list_briefly(tensors)}) {kind}; expected the weights of "
            f"one of {', '.join(FEATURE_DIM)} below some prefix. Another network is named by "
            f"--encoder, such as timm:vit_small_patch16_224.dino"
        )
    best = max(candidates, key=lambda candidate: len(candidate.names) - candidate.num_flaws)
    flaws, missing = best.flaws, best.flaws["missing"]
    listed = "; ".join(f"{word} {list_briefly(names)}" for word, names in flaws.items() if names)
    if flaws["not read"]:
        advice = (
            "Untrusted code is never executed; where you trust the source of the file, load it "
            "there and save plain tensors"
        )
    elif flaws["wrong shape"]:
        advice = (
            "Its shapes are those of another architecture: where a library knows it, name it, such "
            "as --encoder timm:resnet50d.ra2_in1k"
        )
    elif missing and all(re.search("running_(mean|var)$", name) for name in missing):
        advice = (
            "The file holds parameters alone, without the running statistics of the norms: save "
            "model.state_dict(), not model.parameters()"
        )
    else:
        advice = "Export the whole backbone, or fetch the file again"
    return (
        f"no complete ResNet; nearest is {best.arch} ({best.stem} stem, {best.scheme.name} names) "
        f"under prefix {best.prefix!r}: {listed}. {advice}"
    )
