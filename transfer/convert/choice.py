"""Choose the backbone among the ResNets of a file, or say what to do.

Names decide between copies of one network only: a query encoder and its momentum copy, or DINO's
student and teacher. Networks of different kinds are never chosen by their names; the user says
which is meant.
"""

import re
from collections.abc import Mapping

import torch

from transfer.convert.architectures import FEATURE_DIM, BackboneError, is_optional
from transfer.convert.candidates import Candidate
from transfer.convert.read_file import StoredTensor
from transfer.convert.resnet import tensor_shapes

OTHERS = (
    (r"(^|[._])flat_param(_\d+)?$", "parameters that FSDP has flattened: save a full state dict"),
    (
        r"(fp32_groups|fp32_flat_groups|single_partition_of)",
        "a part of DeepSpeed's optimizer: its script zero_to_fp32.py makes one state dict of all",
    ),
    (
        r"(^|\.)(res\d_\d+_branch\d\w*|res_conv1_bn)_[wbs]$",
        "Caffe2's names of a ResNet with other strides and inputs: convert them to detectron2's",
    ),
    (
        r"(^|\.)(embedder\.embedder|encoder\.stages\.\d+\.layers)\.",
        "Hugging Face's ResNet: say --encoder hf:FOLDER with its config.json and model.safetensors",
    ),
    (r"^\d+$", "a list of tensors without names: save model.state_dict()"),
)
"""Patterns of names that tell what a file is, and what to do."""
MOMENTUM_SIDE = (
    r"encoder_k|key_encoder|momentum|moco_encoder|target|teacher|(^|[._])ema([._]|$)|_k\."
)
QUERY_SIDE = r"encoder_q|base_encoder|query|online|student"


def choose(
    candidates: list[Candidate], tensors: Mapping[str, StoredTensor], branch: str = ""
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
    if chosen.scheme.refusal:
        raise BackboneError(
            f"below {chosen.prefix!r} stands a network that is not torchvision's ResNet: "
            f"{chosen.scheme.refusal}; its features would differ. Train with a torchvision ResNet"
        )
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
            f"--branch {branch} names {len(named) or 'none'} of them: the ResNets in the file are "
            f"{'; '.join(map(str, best.values()))}. Give a part of one prefix that no other has"
        )
    return named[0]


def _check_other_side(
    chosen: Candidate, candidates: list[Candidate], tensors: Mapping[str, StoredTensor]
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
                f"the only complete ResNet is {chosen}, and a student of another network stands "
                f"beside it (first {student}). If you mean the teacher, say --branch teacher"
            )


def _prefer(
    complete: list[Candidate], tensors: Mapping[str, StoredTensor]
) -> tuple[Candidate, str]:
    if len(complete) == 1:
        return complete[0], "the only complete ResNet in the file"
    one_network = len({candidate.network for candidate in complete}) == 1
    teachers = [candidate for candidate in complete if candidate.has("teacher")]
    students = [candidate for candidate in complete if candidate.has("student")]
    if one_network and len(teachers) == 1 and students:
        return teachers[0], "the teacher, which DINO's authors evaluate"
    online = [candidate for candidate in complete if not candidate.has(MOMENTUM_SIDE)]
    if one_network and len(online) == 1:
        return online[0], "the query side, not its momentum copy"
    if one_network and online and all(_equal(online[0], c, tensors) for c in online[1:]):
        return online[0], f"one ResNet under {len(online)} names"
    query = [candidate for candidate in online if candidate.has(QUERY_SIDE)]
    if one_network and len(query) == 1:
        return query[0], "the query side"
    kinds = "" if one_network else " of different networks"
    raise BackboneError(
        f"{len(complete)} complete ResNets{kinds} are in the file, and no name tells the backbone: "
        f"{'; '.join(map(str, complete))}. Say which you mean by a part of its prefix that no "
        f"other has, such as --branch {complete[0].label.removesuffix('.')!r}"
    )


def _equal(one: Candidate, other: Candidate, tensors: Mapping[str, StoredTensor]) -> bool:
    if one.network != other.network:
        return False
    return all(
        torch.equal(tensors[name].read(), tensors[other.names[key]].read())
        for key, name in one.names.items()
        if not is_optional(name)
    )


def _refusal(candidates: list[Candidate], tensors: Mapping[str, StoredTensor]) -> str:
    """Return a message that says what was found instead of a complete ResNet."""
    if clip := next((name for name in tensors if re.search(r"(^|\.)attn_?pool\.", name)), None):
        return (
            f"it holds CLIP's modified ResNet (attention pooling in {clip}): three convolutions in "
            f"the stem and average pooling in place of strides, where torchvision's ResNet has "
            f"one convolution and strides. Only torchvision's ResNets can be transferred"
        )
    for pattern, sentence in OTHERS:
        if other := next((name for name in tensors if re.search(pattern, name)), None):
            return f"it holds {sentence} ({other})"
    if not candidates:
        examples = ", ".join(list(tensors)[:3])
        transformer = any(re.search("cls_token|pos_embed|patch_embed", name) for name in tensors)
        kind = "look like a Vision Transformer's" if transformer else "belong to no ResNet"
        return (
            f"its {len(tensors)} tensors ({examples}, ...) {kind}; expected the weights of one of "
            f"{', '.join(FEATURE_DIM)} below some prefix. Another network is named by --encoder, "
            "such as timm:vit_small_patch16_224.dino"
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
            ("not read", best.unread),
        )
        if names
    ]
    advice = "Export the whole backbone, or fetch the file again"
    if best.misshapen:
        advice = (
            "Its shapes are those of another architecture: where a library knows it, name it, such "
            "as --encoder timm:resnet50d.ra2_in1k"
        )
    elif best.missing and all(re.search("running_(mean|var)$", name) for name in best.missing):
        advice = (
            "The file holds parameters alone, without the running statistics of the norms: save "
            "model.state_dict(), not model.parameters()"
        )
    if best.unread:
        advice = (
            "Untrusted code is never executed; where you trust the source of the file, load it "
            "there and save plain tensors"
        )
    return (
        f"no complete ResNet; nearest is {best.arch} ({best.stem} stem, {best.scheme.name} names) "
        f"with {found} of {len(convolutions)} convolutions under prefix {best.prefix!r}: "
        f"{'; '.join(flaws)}. {advice}"
    )
