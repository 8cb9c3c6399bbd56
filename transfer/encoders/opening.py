"""Open a checkpoint file as an `Encoder`.

A file in our format is a `torch.save` (or safetensors) of plain tensors and values, written by the
export of `pretrain`. Its fields are format, arch, stem, state_dict, input and made_by.
Pre-training's encoder.pt has the same fields; projector.py reads its field projectors.

Any other file must contain a torchvision-style ResNet, with the tensor names of any project, unless
--encoder selects its network. Importing this module does not import torch.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from transfer.argument_names import argument_names
from transfer.encoders.architectures import (
    STEMS,
    BackboneError,
    tensor_shapes,
)
from transfer.encoders.encoder import (
    RESNET50_FLOPS,
    Encoder,
    InputFormat,
    content_sha256,
    default_input_format,
    default_name,
    library_sha256,
)
from transfer.encoders.file_types import check_is_checkpoint
from transfer.encoders.hub import address_of, local_file
from transfer.encoders.naming import brief, is_optional, layout_name
from transfer.encoders.options import Checkpoint, EncoderOptions
from transfer.encoders.report import Inspection, describe_input
from transfer.process_state import one_thread, torch_defaults

if TYPE_CHECKING:
    from torch import Tensor, nn

    from transfer.encoders.files import Contents
    from transfer.encoders.matching import Match
    from transfer.encoders.pooling import Built, MapsFunction

FORMAT = "ssl-backbone/1"
ENCODER_FORMAT = "ssl-encoder/1"
"""Format of a backbone file with a projector; projector.py reads the projector."""
FORMATS = (FORMAT, ENCODER_FORMAT)
RESNET = EncoderOptions()
SEGMENTATION = "torchvision's segmentation network"
"""Name of the layout of torchvision's FCN and DeepLab."""


def open_file(
    path: Path | str,
    options: EncoderOptions = RESNET,
    *,
    name: str | None = None,
    branch: str = "",
) -> tuple[Encoder, Inspection]:
    """Open a checkpoint file.

    Every tensor of the network must be set from the file, and every other tensor of the file must
    be a head or of another known kind.

    Args:
        path: Checkpoint file, or its address on the Hugging Face hub.
        options: The network, if it is not a ResNet.
        name: Name in the tables; None for `default_name`.
        branch: A part of the network's prefix, if the file contains several networks.

    Returns:
        The encoder, and how its file was read.

    Raises:
        BackboneError: The file does not contain exactly one complete network.
    """
    from transfer.encoders.public_files import file_digests, public_file_sentence, recognize

    path, options = local_file(Path(path)), options.local()
    options.check()
    check_is_checkpoint(path)
    digests = file_digests(path)
    try:
        encoder, inspection = _read(path, options, branch)
    except BackboneError as error:
        raise BackboneError(f"{path}: {error}") from error
    name = default_name(path) if name is None else name
    source = f"{address_of(path) or path.name}: {inspection.layout} layout"
    source += f", prefix {inspection.prefix}" if inspection.prefix else ""
    if len(inspection.candidates) > 1 or options.encoder:
        source += f" ({inspection.choice})"
    source += f"; assumed: {inspection.assumed}" if inspection.assumed else ""
    source += encoder.source  # library and images, if it is not a ResNet
    public_file = None if encoder.made_by else recognize(digests)
    encoder = replace(
        encoder,
        name=name,
        source=source,
        file=str(path),
        file_sha256=digests["sha256"],
        declared=public_file.recipe if public_file else "",
        checkpoint=Checkpoint(ckpt=path, name=name, branch=branch, network=options),
    )
    if public_file:
        inspection = replace(inspection, public_file_note=public_file_sentence(public_file))
    return encoder, inspection


@argument_names()
def load_backbone(path: Path | str, *, name: str | None = None, branch: str = "") -> Encoder:
    """Open a checkpoint file with a torchvision-style ResNet, of any project.

    Args:
        path: Checkpoint file, or its address on the Hugging Face hub.
        name: Name of the row in tables. Default: the name of the file, or of its folder for a file
            such as backbone.pt.
        branch: A part of the network's prefix, if the file contains several ResNets.

    Returns:
        The encoder.

    Raises:
        BackboneError: The file does not contain exactly one complete ResNet.
    """
    return open_file(path, name=name, branch=branch)[0]


@torch_defaults()
def _read(path: Path, options: EncoderOptions, branch: str) -> tuple[Encoder, Inspection]:
    """Return the encoder without the fields that describe the file."""
    from transfer.encoders.files import read_file

    contents = read_file(path)
    if not contents.tensors:
        text = f"expected weights; the file contains {len(contents.values)} plain values"
        if contents.opaque:
            paths = brief(dict.fromkeys(contents.opaque.values()))
            text += f" and objects of {paths}, which need code execution: save model.state_dict()"
        raise BackboneError(text)
    if options.encoder:
        return _library_network(contents, path, options, branch)
    if contents.own_fields is not None:
        return _backbone_file(contents, contents.own_fields, branch)
    return _resnet(contents, branch)


def _backbone_file(
    contents: Contents, fields: Mapping[str, Any], branch: str
) -> tuple[Encoder, Inspection]:
    """Open a file in our format.

    Raises BackboneError if a field is wrong, or if names and shapes do not fit the architecture.
    """
    from transfer.encoders import matching

    match fields:
        case {
            "format": file_format,
            "arch": str() as arch,
            "stem": stem,
            "state_dict": dict(),
            "input": {"mean": mean, "std": std, "size": size_px, "channels": "RGB"},
            "made_by": dict() as made_by,
        } if file_format in FORMATS and stem in STEMS:
            pass
        case tree:
            listed = {key: value for key, value in tree.items() if key != "state_dict"}
            raise BackboneError(
                f"the fields are {str(listed)[:300]}; expected state_dict, made_by, format "
                f"{FORMAT!r}, arch, stem ({', '.join(STEMS)}) and input (mean and std of three "
                f"floats each, size in px, channels RGB): export it again with this version"
            )
    shapes = {name: (name, shape) for name, shape in tensor_shapes(arch, stem).items()}
    plan = matching.Plan(arch, stem, file_format, shapes)
    network = matching.fit(plan, "state_dict.", contents.tensors)
    matching.choose([network], contents, "", branch)
    made_by = json.loads(json.dumps(made_by, default=lambda node: type(node).__name__))
    input_format = InputFormat(mean=mean, std=std, size_px=size_px)
    return _of_resnet(network, contents, input_format, made_by=made_by), Inspection(
        layout=file_format,
        prefix=network.prefix,
        kinds=matching.count_tensor_kinds(network, [network], contents),
        num_loaded=len(network.names),
        choice="declared by the file",
        candidates=(str(network),),
    )


def _of_resnet(
    match: Match,
    contents: Contents,
    input_format: InputFormat,
    *,
    made_by: dict[str, object],
    is_bgr: bool = False,
) -> Encoder:
    import torch

    from transfer.encoders.matching import weights_of

    arch, stem = match.network
    tensors = {
        name: torch.empty(shape, device="meta", dtype=torch.float32 if shape else torch.int64)
        for name, shape in tensor_shapes(arch, stem).items()
    }
    weights = weights_of(match, contents, tensors)
    if is_bgr:
        weights["conv1.weight"] = weights["conv1.weight"].flip(1)
    return Encoder(
        arch=arch,
        stem=stem,
        state_dict=weights,
        input=input_format,
        made_by=made_by,
        sha256=content_sha256(arch, stem, input_format, weights),
    )


def _resnet(contents: Contents, branch: str) -> tuple[Encoder, Inspection]:
    """Open a third-party ResNet with its declared stem and images."""
    from transfer.encoders import matching
    from transfer.encoders.stated import apply_stem, input_of, read_statements

    matches = matching.find(matching.resnet_plans(), contents)
    match, choice = matching.choose(matches, contents, "", branch)
    statements = read_statements(contents.values, contents.tensors)
    match, stem_note = apply_stem(match, matches, statements)
    declared = input_of(statements)
    default = default_input_format(match.plan.stem)
    input_format = replace(
        default, mean=declared.mean or default.mean, std=declared.std or default.std
    )
    layout = layout_name(
        match.plan.scheme, match.prefix, contents.tensors.keys() - set(match.names.values())
    )
    notes = [stem_note] if stem_note else []
    if declared.entries:
        notes.append(f"images as the file says: {declared.entries}")
    if declared.is_bgr:
        notes.append("the channels of the first convolution are reversed: BGR became RGB")
    notes += _precision_notes(match, contents)
    if contents.opaque:
        paths = brief(dict.fromkeys(contents.opaque.values()))
        notes.append(f"tensors inside objects of other classes are not read: {paths}")
    if layout == SEGMENTATION:
        notes.append("layer3 and layer4 stride here; in that network they are usually dilated")
    unknown = "strides, eps" if stem_note else "strides, eps, padding and pooling"
    images = "" if declared.entries else ", RGB, mean and std of ImageNet"
    others = [m for m in matches if m.num_flaws == 0 and m.prefix != match.prefix]
    encoder = _of_resnet(match, contents, input_format, made_by={}, is_bgr=declared.is_bgr)
    return encoder, Inspection(
        layout=layout,
        prefix=match.prefix,
        kinds=matching.count_tensor_kinds(match, matches, contents),
        num_loaded=len(match.names),
        choice=choice,
        candidates=(str(match), *map(str, others)),
        assumed=f"{unknown} of torchvision's network{images}",
        notes=tuple(notes),
    )


def _precision_notes(match: Match, contents: Contents) -> list[str]:
    """Return a note if the file's network is not in float32."""
    import torch

    names = (name for network_name, name in match.names.items() if not is_optional(network_name))
    cast = {contents.tensors[name].dtype for name in names} - {torch.float32}
    return [f"cast to float32 from {', '.join(sorted(map(str, cast)))}"] if cast else []


def _library_network(
    contents: Contents, path: Path, options: EncoderOptions, branch: str
) -> tuple[Encoder, Inspection]:
    """Open a network that a library or a user's file builds.

    Names and shapes are checked before missing options are asked for.
    """
    from transfer.encoders import matching
    from transfer.encoders.sources import build, load_with_transformers, removed_head_tensors
    from transfer.encoders.verify import fill

    built = build(options.encoder, options.input_px, contents.tensors)
    if built.folder is None:
        stored = built.network.state_dict()
    else:
        built, stored = load_with_transformers(built, path)
    matches = matching.find([matching.plan_of(stored, options.label)], contents)
    match, choice = matching.choose(matches, contents, options.label, branch)
    heads = removed_head_tensors(built.network, match.prefix, contents.tensors)
    kinds = matching.count_tensor_kinds(match, matches, contents, heads)
    weights = matching.weights_of(match, contents, stored)
    if built.folder is None:
        fill(built.network, weights)
    elif changed := [name for name, values in stored.items() if not values.equal(weights[name])]:
        raise BackboneError(f"transformers changes the values of {brief(changed)}")
    assumed = ""
    if built.assumed and not options.input_mean:
        assumed = f"mean and std of {built.assumed}, not stated for this file"
    library = built.library.replace("file ", "SHA-256 of this file: ")
    library = library.replace("config ", "SHA-256 of config.json: ")
    notes = [f"built by {options.encoder}, {library}", *_precision_notes(match, contents)]
    return encoder_of_network(built, options, "", ""), Inspection(
        layout=options.label,
        prefix=match.prefix,
        kinds=kinds,
        num_loaded=len(match.names),
        choice=choice,
        candidates=(match.label, *(m.label for m in matches if m is not match and not m.num_flaws)),
        assumed=assumed,
        notes=tuple(notes),
    )


def encoder_of_network(
    built: Built,
    options: EncoderOptions,
    name: str,
    source: str,
    module: nn.Module | None = None,
    maps: MapsFunction | None = None,
) -> Encoder:
    """Return the encoder of a network with its weights.

    The code of a user's module or maps function has no version. It is identified by its output on
    fixed noise, rounded to three digits. Raises BackboneError if the features do not depend on the
    image.
    """
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from transfer.encoders.maps import Maps
    from transfer.encoders.pooling import Pooled
    from transfer.encoders.verify import check_features, fixed_images, forward

    size_px = options.input_px or built.size_px
    mean, std = options.input_mean or built.mean, options.input_std or built.std
    missing = [] if size_px else ["--input-px"]
    missing += ["--input-mean and --input-std"] if mean is None or std is None else []
    if missing:
        raise BackboneError(
            f"the input format of {options.encoder} is unknown: {built.missing_input_reason}; or "
            f"pass {', '.join(missing)}"
        )
    input_format = InputFormat(size_px=size_px, mean=mean, std=std)
    network = Pooled(built, options.pool, options.encoder).eval()
    images = fixed_images(input_format.size_px)
    # the counter fails on parametrized modules in inference mode
    with torch.inference_mode(False), torch.no_grad(), one_thread():
        with FlopCounterMode(display=False) as counter:
            features = forward(network, images)
        check_features(network, images, features)
        features = features.float()
    library = built.library
    if module is not None:
        library += f", response {_response(features)}"
    if maps is not None:
        with torch.no_grad(), one_thread():
            library += f", maps {_response(Maps(built.network, maps)(images).float())}"
    weights = dict(built.network.state_dict())
    encoder = Encoder(
        name=name,
        arch=options.label,
        stem="",  # type: ignore[arg-type]
        state_dict=weights,
        input=input_format,
        sha256=library_sha256(options, library, input_format, weights),
        options=options,
        width=features.shape[1],
        cost=counter.get_total_flops() / len(features) / RESNET50_FLOPS,
        library=library,
        module=module,
        maps=maps,
    )
    return replace(encoder, source=f"{source}; {library}; {describe_input(encoder)}")


def _response(values: Tensor) -> str:
    """Return eight hex digits of a hash of the values.

    The values are rounded to three digits of the largest, so that they are equal on all machines.
    """
    import torch

    digits = (values / values.abs().max() * 1000).round().to(torch.int16).numpy()
    return hashlib.sha256(digits.tobytes()).hexdigest()[:8]
