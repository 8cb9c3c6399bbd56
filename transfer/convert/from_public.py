"""Convert a checkpoint of another project to torchvision's names, or say what is missing."""

from collections.abc import Iterator
from pathlib import Path

import torch
from torch import Tensor

from transfer.convert.architectures import BackboneError, feature_dim
from transfer.convert.files import Contents
from transfer.convert.inspection import Inspection
from transfer.convert.matching import Match, account, choose, find, resnet_plans, weights_of
from transfer.convert.naming import brief, is_optional, layout_name
from transfer.convert.proof import check_response, fixed_images
from transfer.convert.resnet import meta_tensors, network_with
from transfer.convert.stated import StatedInput, apply_stem, input_of, read_statements


def convert(
    contents: Contents, path: Path, branch: str = ""
) -> tuple[dict[str, Tensor], StatedInput, Inspection]:
    """Return the one backbone in `contents`, under torchvision's names; `path` is only named.

    The file's images may be stated as BGR, but the first convolution returned takes RGB.

    branch: prefix, or a part of it, of the ResNet to take; chosen by the names if empty.
    BackboneError unless there is exactly one, complete and finite, whose features depend on the
    image.
    """
    check_tensors(contents)
    tensors = contents.tensors
    found = find(resnet_plans(), contents)
    chosen, choice = choose(found, contents, "", branch)
    statements = read_statements(contents.values, tensors)
    chosen, stem_note = apply_stem(chosen, found, statements)
    arch, stem = chosen.network
    stated = input_of(statements)
    kinds = account(chosen, found, contents)
    state_dict = weights_of(chosen, contents, meta_tensors(arch, stem))
    check_response(network_with(arch, stem, state_dict).requires_grad_(False)(fixed_images()))
    if stated.is_bgr:
        state_dict["conv1.weight"] = state_dict["conv1.weight"].flip(1)
    complete = [match for match in found if match.num_flaws == 0 and match.prefix != chosen.prefix]
    others = tensors.keys() - set(chosen.names.values())
    inspection = Inspection(
        path=str(path),
        layout=layout_name(chosen.plan.scheme, chosen.prefix, others),
        prefix=chosen.prefix,
        arch=arch,
        stem=stem,
        kinds=kinds,
        candidates=(str(chosen), *map(str, complete)),
        choice=choice,
        proof=placed_words(len(chosen.names), len(state_dict)),
        num_features=feature_dim(arch),
        is_norm_stated=stated.mean is not None and stated.std is not None,
        assumed=_assumptions(is_stem_stated=bool(stem_note), is_input_stated=bool(stated.entries)),
        notes=(*filter(None, [stem_note]), *_notes(chosen, contents, stated)),
    )
    return state_dict, stated, inspection


def check_tensors(contents: Contents) -> None:
    """Raise BackboneError for a file without tensors that can be read."""
    if contents.tensors:
        return
    if contents.opaque:
        raise BackboneError(
            f"all tensors are inside objects of other classes, which would need code execution: "
            f"{brief(dict.fromkeys(contents.opaque.values()))}. If you trust the source of "
            f"the file, load it there and save model.state_dict()"
        )
    raise BackboneError(
        f"the file holds no tensors, only {len(contents.values)} plain values; expected weights"
    )


def placed_words(num_placed: int, num_tensors: int) -> str:
    """Return how many of a network's tensors come from the file."""
    words = f"{num_placed} of {num_tensors} tensors set once from the file, in their shapes"
    return words if num_placed == num_tensors else f"{words}; the others are counters or constants"


def _assumptions(*, is_stem_stated: bool, is_input_stated: bool) -> str:
    """Return what neither the tensors nor the entries of a file show."""
    unknown = "strides, eps" if is_stem_stated else "strides, eps, padding and pooling"
    images = "" if is_input_stated else ", RGB, mean and std of ImageNet"
    return f"{unknown} of torchvision's network{images}"


def precision_notes(chosen: Match, contents: Contents) -> list[str]:
    """Return a note if the file stores the network in another precision than float32."""
    names = (name for own, name in chosen.names.items() if not is_optional(own))
    cast = {contents.tensors[name].dtype for name in names} - {torch.float32}
    return [f"cast to float32 from {', '.join(sorted(map(str, cast)))}"] if cast else []


def _notes(chosen: Match, contents: Contents, stated: StatedInput) -> Iterator[str]:
    """Yield what a reader should know about the images, the precision and unread objects."""
    if stated.entries:
        yield f"images as the file says: {stated.entries}"
    if stated.is_bgr:
        yield "the channels of the first convolution are reversed: BGR became RGB"
    yield from precision_notes(chosen, contents)
    if contents.opaque:
        paths = brief(dict.fromkeys(contents.opaque.values()))
        yield f"tensors inside objects of other classes are not read: {paths}"
