"""The backbone, loaded from our own file or from a public checkpoint, and checked in full.

Our own file is a `torch.save` (or safetensors) of plain tensors and values, written by the export
of `pretrain`. Its fields are format, arch, stem, state_dict, input and made_by. Pre-training's
encoder.pt is read in the same way; its field projectors is left to transfer/projector.py.
"""

from __future__ import annotations

import hashlib
import json
import operator
import os
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from pretrain.running.command_line import Range
from transfer.convert.architectures import (
    STEMS,
    Stem,
    feature_dim,
    is_large,
    network_and_heads,
)
from transfer.convert.architectures import BackboneError as BackboneError
from transfer.process_state import torch_defaults

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL import Image
    from torch import Tensor
    from torchvision.models import ResNet

    from transfer.convert.files import Contents
    from transfer.convert.inspection import Inspection

    Loaded = tuple[dict[str, Tensor], "InputFormat", Inspection]

FORMAT = "ssl-backbone/1"
ENCODER_FORMAT = "ssl-encoder/1"
"""A backbone file with the projector beside the backbone; transfer/projector.py reads that."""
OWN_FORMATS = (FORMAT, ENCODER_FORMAT)

MAX_SHOWN_PATH = 200
"""Longest path in a message, in characters."""
MAX_MESSAGE = 4000
"""Longest reason for a refusal, in characters."""

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)

MEAN_RANGE = Range(0, 1)
STD_RANGE = Range(0, 1, open_below=True)
SIDE_RANGE = Range(8, 2**13)
"""Ranges of an encoder's input, for every way to state it; the side is in px."""

Channels = tuple[float, ...]
"""Red, green and blue."""
Precision = Literal["float32", "bfloat16"]


@dataclass(frozen=True, kw_only=True)
class InputFormat:
    """The images that the backbone was trained on: (x - mean) / std, x from 0 to 1.

    Mean and std may be given as any sequence or array of three numbers, and are kept as tuples of
    floats. BackboneError if they normalize no image, or for a side out of range.
    """

    mean: Channels = IMAGENET_MEAN
    std: Channels = IMAGENET_STD
    size_px: int = 224
    channels: Literal["RGB"] = "RGB"

    def __post_init__(self) -> None:
        """Check all numbers; every encoder passes here, whoever states its input."""
        for name, range_ in (("mean", MEAN_RANGE), ("std", STD_RANGE)):
            stated = getattr(self, name)
            # a set has no order, and a text may consist of three digits
            numbers = () if isinstance(stated, (str, set, frozenset)) else _floats(stated)
            if len(numbers) != 3:
                raise BackboneError(
                    f"{name} is {stated!r}; expected three numbers: red, green, blue"
                )
            if any(number not in range_ for number in numbers):
                why = f"{name} is {numbers}; expected {range_}, for pixels from 0 to 1"
                if 1 < max(numbers) <= 255:
                    why += (
                        ". These are numbers for pixels from 0 to 255: divide mean and std by 255"
                    )
                raise BackboneError(why)
            object.__setattr__(self, name, numbers)
        try:
            side = operator.index(self.size_px)
        except TypeError:
            side = 0
        if side not in SIDE_RANGE:
            raise BackboneError(
                f"size_px is {self.size_px!r}; expected the side of square images in px, an "
                f"integer of {SIDE_RANGE}"
            )
        object.__setattr__(self, "size_px", side)


def _floats(values: Any) -> tuple[float, ...]:
    """Return numbers of any kind of sequence as floats; an empty tuple if they are none."""
    try:
        return tuple(float(value) for value in values)
    except (TypeError, ValueError):
        return ()


@dataclass(frozen=True, kw_only=True, eq=False)
class Backbone:
    """A network to transfer, with everything that its records store."""

    name: str
    """Row in tables, folder under results/."""
    arch: str
    """Torchvision's name, followed by "-heads4" if the network has four copies of layer4."""
    stem: Stem
    state_dict: dict[str, Tensor]
    """Torchvision's names without prefix or classifier, float32; heads: layer4.{head}.{block}."""
    input: InputFormat
    made_by: dict[str, object]
    """Method, recipe, epochs, data, seed, commit, versions; empty for foreign files."""
    source: str
    """A line for people, such as "jcl.pth: MoCo layout, prefix state_dict.module.encoder_q."."""
    file_sha256: str
    """Hash of the file; empty for a random initialization."""
    sha256: str
    """`content_sha256` of this backbone, the key of caches."""
    precision: Precision = "float32"
    """Arithmetic of its frozen features."""
    declared: str = ""
    """Recipe that the user declares for a file that does not say how it was made."""
    file: str = ""
    """Path of the file that holds the whole backbone; empty for a random initialization and for
    some of a network's heads."""
    words: tuple[str, ...] = ()
    """Words of a command line that choose it, from --ckpt on; empty if Python code made it."""

    @property
    def feature_dim(self) -> int:
        """Feature dimension C, the sum over all heads."""
        return feature_dim(self.arch)

    @property
    def num_heads(self) -> int:
        """Number of copies of layer4, 0 for an ordinary network."""
        return network_and_heads(self.arch)[1]

    @torch_defaults()
    def random_twin(self) -> Backbone:
        """Return a random initialization of the same network with the same input: "random"."""
        twin = random_backbone(arch=self.arch, stem=self.stem, seed=0, input=self.input)
        return replace(twin, words=(*self.words, "--random") if self.words else ())

    def network(self) -> ResNet:
        """Return the network (n, 3, H, W) -> (n, C) in eval mode, without gradients."""
        from transfer.convert.resnet import network_with

        copies = {name: tensor.clone() for name, tensor in self.state_dict.items()}
        return network_with(self.arch, self.stem, copies).requires_grad_(False)

    def features(
        self,
        images: Iterable[Image.Image | NDArray[np.uint8] | Tensor],
        *,
        resize_px: int | None = None,
    ) -> Tensor:
        """Return features (n, C) float32 of n images, on the CPU, as tasks compute them.

        images: Pillow images, arrays (H, W, 3) or tensors (3, H, W), RGB in uint8 and of any size.
        Their short side is resized to resize_px (the input size S if None), the center of S x S px
        is cropped and normalized. FeatureError names an image of another type, NotFiniteError one
        whose features are not finite.
        """
        from transfer.frozen.on_images import image_features

        return image_features(self, images, resize_px=resize_px)


def with_heads(backbone: Backbone, heads: Sequence[int]) -> Backbone:
    """Return the backbone with these heads only; their features are concatenated in this order.

    Head 0 of LooC++ is invariant to all augmentations; its recipe names the others. One head alone
    makes an ordinary ResNet. ValueError if a head does not exist or is named twice.
    """
    count, asked = backbone.num_heads, tuple(heads)
    if not asked or len(set(asked)) < len(asked) or not set(asked) <= set(range(count)):
        raise ValueError(
            f"heads {', '.join(map(str, asked)) or 'none'} of {backbone.name} are asked for; "
            + (f"it has heads 0 to {count - 1}" if count else f"{backbone.arch} has no heads")
        )
    if asked == tuple(range(count)):
        return backbone
    network, alone = network_and_heads(backbone.arch)[0], len(asked) == 1
    renamed = {
        f"layer4.{head}.": "layer4." if alone else f"layer4.{place}."
        for place, head in enumerate(asked)
    }
    weights = backbone.state_dict
    state_dict = {n: tensor for n, tensor in weights.items() if not n.startswith("layer4.")}
    state_dict |= {
        new + name.removeprefix(old): tensor
        for old, new in renamed.items()
        for name, tensor in weights.items()
        if name.startswith(old)
    }
    arch = network if alone else f"{network}-heads{len(asked)}"
    listed = "+".join(map(str, asked))
    return replace(
        backbone,
        name=f"{backbone.name}-heads{listed}",
        arch=arch,
        state_dict=state_dict,
        made_by={**backbone.made_by, "heads": _head_names(backbone, asked)},
        source=f"{backbone.source}, heads {listed} of {count}",
        sha256=content_sha256(arch, backbone.stem, backbone.input, state_dict),
        file="",
        words=(*backbone.words, "--heads", *map(str, asked)) if backbone.words else (),
    )


def _head_names(backbone: Backbone, heads: Sequence[int]) -> list[str]:
    """Return the augmentation that each head is not invariant to, or its number if unknown."""
    settings = backbone.made_by.get("settings")
    designated = settings.get("config.designated") if isinstance(settings, dict) else None
    names = ["invariant", *map(str, designated)] if isinstance(designated, list) else []
    return [names[head] if head < len(names) else str(head) for head in heads]


def content_sha256(
    arch: str, stem: Stem, input: InputFormat, state_dict: Mapping[str, Tensor]
) -> str:
    """Return a hash of all that determines the features, independent of the file format."""
    import torch

    digest = hashlib.sha256(json.dumps([arch, stem, asdict(input)]).encode())
    for name, tensor in sorted(state_dict.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


def require_file(path: Path) -> None:
    """Raise a BackboneError if there is no such file, before torch is imported to read it."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        raise BackboneError(f"{_shown(path)}: no such file; expected a checkpoint file") from None
    except OSError as error:
        why = f"the system cannot open it ({error.strerror or error}); give another path"
        raise BackboneError(f"{_shown(path)}: {why}") from error


def _shown(path: Path) -> str:  # it may be of any length
    return str(path)[:MAX_SHOWN_PATH] + "..." * (len(str(path)) > MAX_SHOWN_PATH)


UNNAMED = {
    *("backbone", "encoder", "model", "models", "network", "net", "head", "pytorch", "pretrained"),
    *("checkpoint", "ckpt", "snapshot", "weights", "state", "dict", "pth", "pt", "tar", "of"),
    *("best", "last", "latest", "final", "epoch", "ep", "step", "iter", "iteration", "phase"),
    *("student", "teacher", "ema"),
}
"""Words of file names that do not say which run a file is from."""
RUN_SUBFOLDERS = ("checkpoints", "ckpts", "snapshots", "weights")
"""Folders in the folder of a run whose names do not say which run it is."""


def default_name(path: Path) -> str:
    """Return the name of a checkpoint's row if the user gives none.

    It is the file's name without its ending. Of a file such as backbone.pt or checkpoint.pth, which
    every run writes, it is the name of the run's folder, and of one with a number, such as
    checkpoint_0199.pth.tar, both.
    """
    words = re.findall(r"[^\W\d_]+", path.stem.lower())
    if not UNNAMED.issuperset(words):
        return path.stem
    folder = Path(os.path.realpath(path.parent))
    names = [one.name for one in (folder, *folder.parents)]
    run = next((name for name in names if name and name not in RUN_SUBFOLDERS), "")
    has_number = any(letter.isdigit() for letter in path.stem)
    parts = [run, path.stem.removesuffix(".pth") if has_number or not run else ""]
    return "-".join(filter(None, parts))


@torch_defaults()
def load_backbone(path: Path, *, name: str | None = None, branch: str = "") -> Backbone:
    """Return the backbone in a file of ours or of another project.

    name: that of its row in the tables; `default_name` of the file if None. branch: a part of the
    prefix of the ResNet to take where a foreign file holds several.
    BackboneError, with what was found and expected, unless the file holds exactly one complete
    ResNet, each tensor of which is set from the file.
    """
    return _load(path, name or default_name(path), branch)[0]


def inspect_file(path: Path, branch: str = "") -> Inspection:
    """Return how `load_backbone` reads the file, for `render`; raise the same errors."""
    from transfer.convert.public_files import public_file_sentence, recognize_file

    backbone, inspection = _load(path, default_name(path), branch)
    form = backbone.input
    unsaid = "" if inspection.layout in OWN_FORMATS else "; assumed, the file does not say"
    known = recognize_file(path)
    return replace(
        inspection,
        known_as=public_file_sentence(known) if known else "",
        image=f"{form.channels}, {form.size_px} px{unsaid}",
        norm=norm_words(form) + ("" if inspection.is_norm_stated else unsaid),
    )


def norm_words(form: InputFormat) -> str:
    """Return how images are normalized, for people."""
    mean, std = (" ".join(f"{value:g}" for value in values) for values in (form.mean, form.std))
    return f"mean {mean}, std {std}"


def random_backbone(
    *, arch: str, stem: Stem, seed: int, input: InputFormat | None = None, name: str = "random"
) -> Backbone:
    """Return torchvision's initialization, fixed by the seed; the global generator is unchanged."""
    import torch

    from transfer.convert.resnet import build_resnet

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        state_dict: dict[str, Tensor] = dict(build_resnet(arch, stem).state_dict())
    input = input or _usual_input(stem)
    return Backbone(
        name=name,
        arch=arch,
        stem=stem,
        state_dict=state_dict,
        input=input,
        made_by={"method": "random initialisation", "seed": seed},
        source=f"random initialisation of {arch}, {stem} stem, seed {seed}",
        file_sha256="",
        sha256=content_sha256(arch, stem, input, state_dict),
    )


def _usual_input(stem: Stem) -> InputFormat:
    """Return the input format that foreign checkpoints with this stem were trained on."""
    return InputFormat(size_px=224 if is_large(stem) else 32)


def _load(path: Path, name: str, branch: str) -> tuple[Backbone, Inspection]:
    from transfer.convert.files import read_file

    require_file(path)
    try:
        contents = read_file(path)
        read = _read_foreign if contents.own is None else _read_own
        state_dict, input_format, inspection = read(contents, path, branch)
    except BackboneError as error:
        # names and values of the file stand in the message, and may be of any length
        raise BackboneError(f"{_shown(path)}: {str(error)[:MAX_MESSAGE]}") from error
    arch, stem = inspection.arch, inspection.stem
    backbone = Backbone(
        name=name,
        arch=arch,
        stem=stem,
        state_dict=state_dict,
        input=input_format,
        made_by=inspection.made_by,
        source=inspection.source,
        sha256=content_sha256(arch, stem, input_format, state_dict),
        **file_fields(path, name, branch),
    )
    return backbone, inspection


def file_fields(path: Path, name: str, branch: str, *words: str) -> dict[str, Any]:
    """Return the fields of a backbone on its file; words: further ones of the command line."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    words = ("--ckpt", str(path), "--name", name, *words)
    return {
        "file_sha256": digest,
        "file": str(path),
        "words": (*words, "--branch", branch) if branch else words,
    }


def _read_foreign(contents: Contents, path: Path, branch: str) -> Loaded:
    from transfer.convert.from_public import convert

    state_dict, stated, inspection = convert(contents, path, branch)
    usual = _usual_input(inspection.stem)
    form = replace(usual, mean=stated.mean or usual.mean, std=stated.std or usual.std)
    return state_dict, form, inspection


def _read_own(contents: Contents, path: Path, branch: str) -> Loaded:
    """Read our own file; check every field, and that names and shapes are the architecture's."""
    from torch import Tensor

    from transfer.convert.from_public import placed_words
    from transfer.convert.inspection import Inspection
    from transfer.convert.naming import is_optional
    from transfer.convert.proof import check_response, fixed_images, plain_floats
    from transfer.convert.resnet import network_with

    if branch:
        raise BackboneError(
            f"--branch {branch} was asked for, but a file of this suite holds one network: leave "
            f"out --branch"
        )
    match contents.own or {}:
        case {
            "format": layout,
            "arch": str() as arch,
            "stem": stem,
            "state_dict": dict() as stored,
            "input": dict() as input_fields,
            "made_by": dict() as made_by,
        } if layout in OWN_FORMATS and stem in STEMS:
            tensors = {name: t for name, t in stored.items() if isinstance(t, Tensor)}
        case tree:
            fields = {key: value for key, value in tree.items() if key != "state_dict"}
            raise BackboneError(
                f"the fields are {str(fields)[:300]} and {'a' if 'state_dict' in tree else 'no'} "
                f"state_dict; expected format {FORMAT!r}, arch, stem ({', '.join(STEMS)}), "
                f"state_dict, input and made_by: export it again with this version"
            )
    _require_shapes(arch, stem, tensors)
    weights = {
        name: tensor.clone() if is_optional(name) else plain_floats(name, tensor)
        for name, tensor in tensors.items()
    }
    network = network_with(arch, stem, weights).requires_grad_(False)
    check_response(network(fixed_images()))
    kinds = Counter(backbone=len(tensors))
    kinds["head"] = sum(not name.startswith("state_dict.") for name in contents.tensors)
    inspection = Inspection(
        path=str(path),
        layout=layout,
        prefix="state_dict.",
        arch=arch,
        stem=stem,
        kinds=+kinds,
        candidates=(f"state_dict. ({arch}, {stem} stem)",),
        choice="the file says so",
        proof=placed_words(len(tensors), len(tensors)),
        num_features=feature_dim(arch),
        made_by=dict(made_by),
    )
    return dict(network.state_dict()), _input_format(input_fields), inspection


def _require_shapes(arch: str, stem: Stem, tensors: Mapping[str, Tensor]) -> None:
    """Raise BackboneError for other names or shapes; none is copied, and may repeat a number."""
    import torch

    from transfer.convert.resnet import network_with

    network_with(arch, stem, {n: torch.empty(t.shape, device="meta") for n, t in tensors.items()})


def _input_format(fields: Any) -> InputFormat:
    match fields:
        case {
            "mean": [float(), float(), float()] as mean,
            "std": [float(), float(), float()] as std,
            "size": int() as size_px,
            "channels": "RGB",
        }:
            try:
                return InputFormat(mean=tuple(mean), std=tuple(std), size_px=size_px)
            except BackboneError as error:
                raise BackboneError(f"input: {error}; export it again") from error
    raise BackboneError(
        f"input is {fields!r}; expected mean and std of three floats each, size in px, "
        f"channels RGB; export it again"
    )
