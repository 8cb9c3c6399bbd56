"""Convert a checkpoint of another project to torchvision's names, or say what is missing."""

import math
from collections.abc import Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor

from transfer.convert.account import account
from transfer.convert.architectures import BackboneError, feature_dim, is_optional
from transfer.convert.candidates import Candidate, find_candidates
from transfer.convert.choice import choose
from transfer.convert.files import Contents
from transfer.convert.inspection import Inspection
from transfer.convert.layouts import layout_name
from transfer.convert.messages import list_briefly
from transfer.convert.proof import check_response, fixed_images, plain_floats
from transfer.convert.resnet import network_with, tensor_shapes
from transfer.convert.stated_input import StatedInput, read_input
from transfer.convert.statements import heed, read_statements

MAX_COUNTERS = 1024
"""Values of a step counter that is read; one of a process per GPU has as many as GPUs."""


def convert(
    contents: Contents, path: Path, branch: str = ""
) -> tuple[dict[str, Tensor], StatedInput, Inspection]:
    """Return the one backbone in `contents`, under torchvision's names; `path` is only named.

    The file's images may be stated as BGR, but the first convolution returned takes RGB.

    branch: prefix, or a part of it, of the ResNet to take; chosen by the names if empty.
    BackboneError unless there is exactly one, complete and finite, whose features depend on the
    image.
    """
    tensors = contents.tensors
    if not tensors and contents.opaque:
        raise BackboneError(
            f"all tensors are inside objects of other classes, which would need code execution: "
            f"{list_briefly(dict.fromkeys(contents.opaque.values()))}. If you trust the source of "
            f"the file, load it there and save model.state_dict()"
        )
    if not tensors:
        raise BackboneError(
            f"the file holds no tensors, only {len(contents.values)} plain values; expected weights"
        )
    found = find_candidates(tensors, contents.opaque)
    chosen, choice = _choose_or_explain(found, contents, branch)
    chosen, variant = heed(chosen, found, read_statements(contents.values, tensors))
    complete = [c for c in found if c.num_flaws == 0 and c.prefix != chosen.prefix]
    stated = read_input(contents.values, tensors)
    groups = account(tensors, chosen, complete, contents.opaque)
    raw = {
        name: plain_floats(name, tensors[name])
        for key, name in chosen.names.items()
        if not is_optional(key)
    }
    state_dict = to_torchvision(chosen, raw, tensors)
    network = network_with(chosen.arch, chosen.stem, state_dict).requires_grad_(False)
    check_response(network(fixed_images()))
    if stated.is_bgr:
        state_dict["conv1.weight"] = state_dict["conv1.weight"].flip(1)
    inspection = Inspection(
        path=str(path),
        layout=layout_name(chosen.scheme, chosen.prefix, tensors.keys() - raw.keys()),
        prefix=chosen.prefix,
        arch=chosen.arch,
        stem=chosen.stem,
        account=groups,
        candidates=(str(chosen), *map(str, complete)),
        choice=choice,
        proof=placed_words(len(chosen.names), len(state_dict)),
        num_features=feature_dim(chosen.arch),
        is_norm_stated=stated.mean is not None and stated.std is not None,
        assumed=_assumptions(is_stem_stated=bool(variant), is_input_stated=bool(stated.entries)),
        notes=(*variant, *_notes(chosen, contents, stated)),
    )
    return state_dict, stated, inspection


def _choose_or_explain(
    found: list[Candidate], contents: Contents, branch: str
) -> tuple[Candidate, str]:
    """Return the backbone to take and why; the error names objects that may hold it unread."""
    try:
        return choose(found, contents.tensors, branch)
    except BackboneError as error:
        if not contents.opaque:
            raise
        listed = list_briefly(dict.fromkeys(contents.opaque.values()))
        raise BackboneError(
            f"{error}. Tensors in objects of other classes are not read: {listed}"
        ) from error


def to_torchvision(
    chosen: Candidate, raw: Mapping[str, Tensor], tensors: Mapping[str, Tensor]
) -> dict[str, Tensor]:
    """Return the state dict in torchvision's order and shapes; num_batches_tracked may be missing.

    A missing one is 0.
    """
    return {
        key: _first_count(tensors.get(chosen.names.get(key, "")))
        if is_optional(key)
        else raw[chosen.names[key]]
        for key in tensor_shapes(chosen.arch, chosen.stem)
    }


def _first_count(tensor: Tensor | None) -> Tensor:
    """Return the first value of a step counter of any shape and type, () int64; else 0."""
    first: float = 0
    if tensor is not None and 0 < tensor.numel() <= MAX_COUNTERS and not tensor.is_complex():
        first = tensor[(0,) * tensor.ndim].item()
    is_count = math.isfinite(first) and 0 <= first < 2**63
    return torch.tensor(int(first) if is_count else 0, dtype=torch.int64)


def placed_words(num_placed: int, num_tensors: int) -> str:
    """Return how many of a network's tensors come from the file."""
    words = f"{num_placed} of {num_tensors} tensors set once from the file, in their shapes"
    return words if num_placed == num_tensors else f"{words}; the others are counters or constants"


def _assumptions(*, is_stem_stated: bool, is_input_stated: bool) -> str:
    """Return what neither the tensors nor the entries of a file show."""
    unknown = "strides, eps" if is_stem_stated else "strides, eps, padding and pooling"
    images = "" if is_input_stated else ", RGB, mean and std of ImageNet"
    return f"{unknown} of torchvision's network{images}"


def _notes(chosen: Candidate, contents: Contents, stated: StatedInput) -> Iterator[str]:
    """Yield what a reader should know about the images, the precision and unread objects."""
    if stated.entries:
        yield f"images as the file says: {stated.entries}"
    if stated.is_bgr:
        yield "the channels of the first convolution are reversed: BGR became RGB"
    tensors = contents.tensors
    dtypes = {tensors[name].dtype for key, name in chosen.names.items() if not is_optional(key)}
    if cast := dtypes - {torch.float32}:
        yield f"cast to float32 from {', '.join(sorted(map(str, cast)))}"
    if contents.opaque:
        paths = list_briefly(dict.fromkeys(contents.opaque.values()))
        yield f"tensors inside objects of other classes are not read: {paths}"
