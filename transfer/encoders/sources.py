"""Networks of other libraries: timm:NAME, torchvision:NAME, hf:FOLDER, FILE.py:FUNCTION.

A source builds the network without classifier. It also defines the output before pooling and, if
known, the input images. Weights are loaded later from a checkpoint; nothing is downloaded. Only
FILE.py, which the user names, is executed.
"""

import hashlib
import importlib.util
import inspect
import json
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pretrain.running.command_line import nearest
from transfer.encoders.architectures import BackboneError
from transfer.encoders.hub import optional_library
from transfer.encoders.maps import timm_maps, torchvision_maps, transformers_maps
from transfer.encoders.modules import checked, module_source
from transfer.encoders.pooling import Built
from transfer.process_state import torch_defaults


def build(encoder: str, size_px: int, tensors: Mapping[str, Tensor]) -> Built:
    """Return the network of a source, with random weights.

    encoder: as in --encoder. size_px: requested image size; 0 for the source's own. tensors:
    tensors of the checkpoint; an optional module is built only if the checkpoint has it.

    Raises BackboneError if the source or the network does not exist.
    """
    kind, _, name = encoder.partition(":")
    path, _, function = encoder.rpartition(":")
    if kind == "timm" and name:
        return _timm(name, size_px)
    if kind == "torchvision" and name:
        return _torchvision(name, size_px, tensors)
    if kind == "hf" and name:
        return _transformers(Path(name), tensors)
    if path.endswith(".py") and function:
        return _user_file(Path(path), function)
    raise BackboneError(
        f"--encoder {encoder}: expected timm:NAME, torchvision:NAME, hf:FOLDER or FILE.py:FUNCTION"
    )


def _timm(name: str, size_px: int) -> Built:
    timm = optional_library("timm", f"timm:{name}", "encoders")
    model, _, tag = name.partition(".")
    if not timm.is_model(model):
        close = nearest(model, timm.list_models())
        raise BackboneError(f"timm {timm.__version__} has no model {model!r}; similar: {close}")
    network: Any
    try:
        size_options: dict[str, Any] = {"img_size": size_px} if size_px else {}
        network = timm.create_model(model, pretrained=False, num_classes=0, **size_options)
    except TypeError:  # a convolutional network takes images of any size
        network = timm.create_model(model, pretrained=False, num_classes=0)
    except RuntimeError as error:
        raise BackboneError(f"timm:{name} cannot be built: {error}") from error
    tags = [t for t in timm.list_pretrained(f"{model}.*") if t.partition(".")[0] == model]
    if tag and name not in tags:
        known_tags = ", ".join(t.partition(".")[2] for t in tags) or "none"
        raise BackboneError(f"timm knows no weights {name!r}; known are {known_tags}")
    configurations = [timm.get_pretrained_cfg(t) for t in ([name] if tag else tags)]
    inputs = {(tuple(config.mean), tuple(config.std)) for config in configurations}
    mean, std = next(iter(inputs)) if len(inputs) == 1 else (None, None)
    size = (configurations[0].input_size if tag else network.default_cfg["input_size"])[-1]
    sizes = {config.input_size[-1] for config in configurations}
    if len(sizes) > 1 and not network.default_cfg["fixed_input_size"]:
        size = 0
    return Built(
        network=network,
        library=f"timm {timm.__version__}",
        size_px=size_px or size,
        mean=mean,
        std=std,
        missing_input_reason=f"its weights have different inputs, select one: {', '.join(tags)}"
        if tags
        else "timm has no weights for it",
        assumed="" if tag else f"timm's weights {', '.join(tags)}",
        unpooled=lambda net, images: net.forward_features(images),  # type: ignore[operator]
        own_pooling=lambda net, images: net(images),
        last_four=_timm_last_four if hasattr(network, "cls_token") else None,
        maps=timm_maps,
    )


def _timm_last_four(network: Any, images: Tensor) -> Tensor:
    options = {"norm": True, "return_prefix_tokens": True, "intermediates_only": True}
    layers = network.forward_intermediates(images, indices=4, output_fmt="NLC", **options)
    patches = layers[-1][0].mean(dim=1)
    return torch.cat([*(prefix[:, 0] for _, prefix in layers), patches], dim=1)


def _torchvision(name: str, size_px: int, tensors: Mapping[str, Tensor]) -> Built:
    from torchvision import models

    if name not in models.list_models(module=models):
        raise BackboneError(f"torchvision {version('torchvision')} has no classifier {name!r}")
    transforms = [weights.transforms() for weights in models.get_model_weights(name)]
    sizes = {transform.crop_size[0] for transform in transforms}
    inputs = {(tuple(transform.mean), tuple(transform.std)) for transform in transforms}
    mean, std = next(iter(inputs)) if len(inputs) == 1 else (None, None)
    fixed = {"image_size": size_px} if size_px and name.startswith("vit_") else {}
    network = models.get_model(name, weights=None, **fixed)
    _keep_auxiliary_heads(network, tensors)
    linear = [key for key, module in network.named_modules() if isinstance(module, nn.Linear)]
    if not linear:
        raise BackboneError(f"torchvision's {name} has no linear classifier to remove")
    network.set_submodule(linear[-1], nn.Identity())
    library = f"torchvision {version('torchvision')}"
    if hasattr(network, "transform_input"):  # GoogLeNet and Inception with torchvision's weights
        network.transform_input = True
        library += ", transform_input"
    return Built(
        network=network,
        library=library,
        size_px=size_px
        or getattr(network, "image_size", 0)
        or (sizes.pop() if len(sizes) == 1 else 0),
        mean=mean,
        std=std,
        missing_input_reason="its weights have different inputs",
        assumed="torchvision's weights",
        own_pooling=lambda net, images: net(images),
        maps=torchvision_maps,
    )


AUXILIARY = ("aux1", "aux2", "AuxLogits")
"""Heads of GoogLeNet and Inception v3 that are used only for training.

torchvision builds the networks without them if it loads its own weights, though these files have
them.
"""


def _keep_auxiliary_heads(network: Any, tensors: Mapping[str, Tensor]) -> None:
    """Remove auxiliary heads unless the file has them.

    A file may lack them, or have them for another number of classes.
    """
    heads = [name for name, _ in network.named_children() if name in AUXILIARY]
    stored = [(f".{name}", values.shape) for name, values in tensors.items()]
    if all(
        any(
            stored_name.endswith(f".{name}") and shape == values.shape
            for stored_name, shape in stored
        )
        for name, values in network.state_dict().items()
        if name.partition(".")[0] in heads
    ):
        return
    for name in heads:
        setattr(network, name, None)
    network.aux_logits = False


def _transformers(folder: Path, tensors: Mapping[str, Tensor]) -> Built:
    transformers = optional_library("transformers", f"hf:{folder}", "encoders")
    if not (folder / "config.json").is_file():
        raise BackboneError(f"hf:{folder}: no config.json; expected the folder of a model")
    try:
        config = transformers.AutoConfig.from_pretrained(folder, local_files_only=True)
        model_class: Any = transformers.MODEL_MAPPING[type(config)]
        has_pooler = any("pooler." in name for name in tensors)
        if "add_pooling_layer" in inspect.signature(model_class).parameters:
            network = model_class(config, add_pooling_layer=has_pooler)
        else:
            network = model_class(config)
    except (KeyError, ValueError, OSError) as error:
        raise BackboneError(f"hf:{folder}: {str(error).splitlines()[0]}") from error
    digest = hashlib.sha256((folder / "config.json").read_bytes()).hexdigest()
    preprocessor: dict[str, Any] = {}
    if (file := folder / "preprocessor_config.json").is_file():
        preprocessor = json.loads(file.read_text())
    size_px = preprocessor.get("crop_size") or preprocessor.get("size") or {}
    if isinstance(size_px, dict):
        size_px = size_px.get("height") or size_px.get("shortest_edge", 0)
    with torch.inference_mode():
        config_size = getattr(config, "image_size", 0) or 0
        size_px = size_px or int(config_size if isinstance(config_size, int) else config_size[0])
        output = network.eval()(pixel_values=torch.zeros(1, 3, size_px or 224, size_px or 224))
    has_pooling = getattr(output, "pooler_output", None) is not None
    can_resample = "interpolate_pos_encoding" in inspect.signature(model_class.forward).parameters
    # without this option, it refuses other sizes
    forward_options = {"interpolate_pos_encoding": True} if can_resample else {}
    return Built(
        network=network,
        library=f"transformers {transformers.__version__}, config {digest[:12]}",
        size_px=size_px,
        mean=preprocessor.get("image_mean"),
        std=preprocessor.get("image_std"),
        missing_input_reason=f"{folder} has no preprocessor_config.json with mean and std",
        unpooled=lambda net, images: net(pixel_values=images).last_hidden_state,
        own_pooling=(lambda net, images: net(pixel_values=images).pooler_output.flatten(1))
        if has_pooling
        else None,
        maps=lambda net, images: transformers_maps(net, images, forward_options),
        folder=folder,
    )


def load_with_transformers(built: Built, file: Path) -> tuple[Built, dict[str, Tensor]]:
    """Return the network with its folder's weights, and its tensors.

    The tensors have the names that they have in model.safetensors. Raises BackboneError if `file`
    is not the folder's model.safetensors.
    """
    from safetensors.torch import load_file

    folder = built.folder
    if folder is None or file.resolve() != (folder / "model.safetensors").resolve():
        raise BackboneError(f"hf:{folder} has its own weights: pass {folder}/model.safetensors")
    pooling = {"add_pooling_layer": False} if built.own_pooling is None else {}
    network = type(built.network).from_pretrained(  # type: ignore[attr-defined]
        folder, local_files_only=True, use_safetensors=True, dtype=torch.float32, **pooling
    )
    with tempfile.TemporaryDirectory() as stored:
        network.save_pretrained(stored)
        tensors = load_file(Path(stored) / "model.safetensors")
    return replace(built, network=network), tensors


def _user_file(path: Path, function: str) -> Built:
    if not path.is_file():
        raise BackboneError(f"--encoder {path}:{function}: no such file")
    name = f"encoder_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise BackboneError(f"--encoder {path}:{function}: Python cannot read the file")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)  # for its dataclasses
    with torch_defaults():  # the file may change global settings for its training
        spec.loader.exec_module(module)
        if not callable(make := getattr(module, function, None)):
            raise BackboneError(f"--encoder {path}: the file has no function {function}")
        network = checked(make())
    input_fields = getattr(module, "INPUT", {})
    example = "INPUT = {'size_px': ..., 'mean': ..., 'std': ...}"
    maps = getattr(module, "maps", None)
    if not isinstance(input_fields, Mapping):
        raise BackboneError(f"{path}: INPUT is {input_fields!r}; expected {example}")
    return replace(
        module_source(network, maps if callable(maps) else None),
        library=f"file {hashlib.sha256(path.read_bytes()).hexdigest()[:12]}",
        size_px=input_fields.get("size_px", 0),
        mean=input_fields.get("mean"),
        std=input_fields.get("std"),
        missing_input_reason=f"{path} has no {example}",
    )


def removed_head_tensors(
    network: nn.Module, prefix: str, tensors: Mapping[str, Tensor]
) -> frozenset[str]:
    """Return tensor names of linear heads that the network replaces by nn.Identity()."""
    modules = (name for name, module in network.named_modules() if isinstance(module, nn.Identity))
    weights = ((f"{prefix}{name}", tensors.get(f"{prefix}{name}.weight")) for name in modules)
    linear = [name for name, weight in weights if weight is not None and weight.ndim == 2]
    return frozenset(f"{name}.{kind}" for name in linear for kind in ("weight", "bias"))
