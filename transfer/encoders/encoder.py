"""Encoder: a torchvision-style ResNet, a library's network or the user's own.

Tasks on frozen features use only (n, 3, H, W) -> (n, C). Importing this module does not import
torch; opening.py creates an `Encoder` from a file or a module.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from transfer.argument_names import argument_names
from transfer.encoders.architectures import (
    BackboneError,
    Stem,
    feature_dim,
    is_large,
    network_and_heads,
    network_words,
)
from transfer.encoders.hub import address_of
from transfer.encoders.options import (
    MEAN_RANGE,
    SIDE_RANGE,
    STD_RANGE,
    Checkpoint,
    EncoderOptions,
    Pool,
)
from transfer.fact_tables import table_html, table_text
from transfer.process_state import torch_defaults
from transfer.record import UNTRAINED

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from PIL import Image
    from torch import Tensor, nn

    from transfer.encoders.maps import Maps
    from transfer.encoders.pooling import Built, MapsFunction

RESNET50_FLOPS = 2 * 4.09e9
"""FLOPs of a ResNet-50 forward pass at 224 px, the unit of costs."""

IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)

Channels = tuple[float, ...]
"""Red, green and blue."""
Precision = Literal["float32", "bfloat16"]


@dataclass(frozen=True, kw_only=True)
class InputFormat:
    """Format of an encoder's input images: (x - mean) / std.

    x is RGB from 0 to 1. Mean and std may be any sequence or array of three numbers; they are
    stored as tuples of floats. Raises BackboneError if they cannot normalize an image, or if the
    size is out of range.
    """

    mean: Channels = IMAGENET_MEAN
    std: Channels = IMAGENET_STD
    size_px: int = 224
    channels: Literal["RGB"] = "RGB"

    def __post_init__(self) -> None:
        """Check all numbers, for every way to create an encoder."""
        for name, range_ in (("mean", MEAN_RANGE), ("std", STD_RANGE)):
            values = getattr(self, name)
            try:
                numbers = tuple(map(float, values))
            except (TypeError, ValueError):
                numbers = ()
            if len(numbers) != 3 or any(number not in range_ for number in numbers):
                raise BackboneError(
                    f"{name} is {values!r}; expected three numbers (red, green, blue) of {range_}, "
                    f"for pixels from 0 to 1: divide numbers for pixels from 0 to 255 by 255"
                )
            object.__setattr__(self, name, numbers)
        if not isinstance(self.size_px, Integral) or self.size_px not in SIDE_RANGE:
            raise BackboneError(
                f"size_px is {self.size_px!r}; expected the side of square images in px, an "
                f"integer of {SIDE_RANGE}"
            )
        object.__setattr__(self, "size_px", int(self.size_px))

    @property
    def norm(self) -> str:
        """Mean and std as text."""
        mean, std = (" ".join(f"{v:g}" for v in values) for values in (self.mean, self.std))
        return f"mean {mean}, std {std}"


@dataclass(frozen=True, kw_only=True, eq=False)
class Encoder:
    """A network to evaluate, with everything that its records store."""

    name: str = ""
    """Row in tables, folder under results/records/."""
    arch: str
    """Name in torchvision, or the encoder as the user named it.

    A ResNet with four copies of layer4 has the suffix "-heads4".
    """
    stem: Stem
    """Stem of a ResNet; empty for another network."""
    state_dict: dict[str, Tensor]
    """Weights in float32, without prefix and classifier.

    Names as in torchvision (heads: layer4.{head}.{block}) or in the encoder's library.
    """
    input: InputFormat
    made_by: dict[str, object] = field(default_factory=dict)
    """Method, recipe, epochs, data, seed, commit, versions; empty for third-party files."""
    source: str = ""
    """Readable source, such as "jcl.pth: MoCo layout, prefix state_dict.module.encoder_q."."""
    file_sha256: str = ""
    """Hash of the file; empty for a random initialization."""
    sha256: str
    """`content_sha256` of this encoder, the key of caches."""
    precision: Precision = "float32"
    """Precision of its frozen features."""
    declared: str = ""
    """Recipe that the user declared, if the file does not record one."""
    file: str = ""
    """Path of the file with the complete network.

    Empty for a random initialization and for a subset of a network's heads.
    """
    checkpoint: Checkpoint | None = None
    """How a command line selects it; None if Python code created it."""
    options: EncoderOptions = field(default_factory=EncoderOptions)
    """Source and pooling of a network that is not a ResNet."""
    library: str = ""
    """Library and version, or hash of the user's file; empty for ResNets."""
    width: int = 0
    """Feature dimension C, from a forward pass; 0 for a ResNet."""
    cost: float = 0.0
    """FLOPs of a forward pass in units of RESNET50_FLOPS; 0 for ResNets."""
    module: nn.Module | None = field(default=None, repr=False)
    """Network of `from_module`; None if it is built from its source."""
    maps: MapsFunction | None = field(default=None, repr=False)
    """Function of the network that returns maps; None: the network returns them."""

    def __repr__(self) -> str:
        """Return the fields, one per line, without the weights."""
        return table_text(f"Encoder {self.name}", self._facts())

    def _repr_html_(self) -> str:
        """Return the fields as an HTML table, for notebooks."""
        return table_html(f"Encoder {self.name}", self._facts())

    def _facts(self) -> dict[str, object]:
        """Return the identifying fields by label."""
        num_values = sum(tensor.numel() for tensor in self.state_dict.values())
        return {
            "network": network_words(self.arch, self.stem),
            "features": f"{self.feature_dim} per image, in {self.precision}",
            "image": f"{self.input.channels}, {self.input.size_px} px",
            "norm": self.input.norm,
            "pooling": self.options.pool,
            "weights": f"{num_values:,} values in {len(self.state_dict)} tensors, sha256 "
            f"{self.sha256[:12]}",
            "source": self.source,
            "made by": {key: value for key, value in self.made_by.items() if key != "settings"},
            "declared": self.declared,
        }

    @property
    def is_resnet(self) -> bool:
        """True for a torchvision-style ResNet, which has stages and can be fine-tuned."""
        return bool(self.stem)

    @property
    def feature_dim(self) -> int:
        """Feature dimension C, the sum over all heads."""
        return feature_dim(self.arch) if self.is_resnet else self.width

    @property
    def num_heads(self) -> int:
        """Number of copies of layer4, 0 for an ordinary network."""
        return network_and_heads(self.arch)[1] if self.is_resnet else 0

    def network(self) -> Any:
        """Return the network (n, 3, H, W) -> (n, C).

        It is in eval mode and its parameters require no gradient.
        """
        from transfer.encoders.pooling import Pooled
        from transfer.encoders.resnets import network_with

        if self.is_resnet:
            copies = {name: tensor.clone() for name, tensor in self.state_dict.items()}
            return network_with(self.arch, self.stem, copies).requires_grad_(False)
        built = self._build()
        built.network.load_state_dict(self.state_dict)
        return Pooled(built, self.options.pool, self.arch).requires_grad_(False).eval()

    def maps_network(self, size_px: int, *, weights: bool = True) -> Maps:
        """Return the network (n, 3, size_px, size_px) -> (n, C, h, w).

        It is in eval mode; see maps.py. weights: False for random weights, as in a plan.
        Raises BackboneError if the encoder has no maps.
        """
        from transfer.encoders.maps import Maps, resize_input, resnet_maps

        if self.is_resnet:
            return Maps(self.network(), resnet_maps).requires_grad_(False).eval()
        built = self._build()
        if weights:
            built.network.load_state_dict(self.state_dict)
        if built.maps is None:
            raise BackboneError("its source has none")
        config = getattr(built.network, "config", None)
        # a model of transformers is not built at --input-px, but at the size of its configuration
        if size_px != getattr(config, "image_size", self.input.size_px):
            resize_input(built.network, size_px)
        return Maps(built.network, built.maps).requires_grad_(False).eval()

    @cached_property
    def maps_stride(self) -> tuple[int, str]:
        """Stride of the maps in px, and an empty text.

        If the encoder has no maps, the stride is 0 and the text is the reason. The stride of a
        ResNet is 32.
        """
        if self.stem == "imagenet":
            return 32, ""
        if self.is_resnet:
            return 0, f"the {self.stem} stem has another stride"
        from transfer.encoders.maps import measured_stride

        try:
            return measured_stride(self), ""
        except BackboneError as error:
            return 0, str(error)

    def _build(self) -> Built:
        from transfer.encoders.modules import copy_of, module_source
        from transfer.encoders.sources import build

        if self.module is not None:
            return module_source(copy_of(self.module), self.maps)
        return build(self.options.encoder, self.options.input_px, self.state_dict)

    def _random_weights(self, *, seed: int) -> dict[str, Tensor]:
        import torch

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = self._build().network
            if self.module is not None:
                for module in network.modules():
                    if callable(reset := getattr(module, "reset_parameters", None)):
                        reset()
        return dict(network.state_dict())

    @torch_defaults()
    def with_random_weights(self) -> Encoder:
        """Return a random initialization with the same network and input.

        Returns:
            The encoder with the name "random".

        Raises:
            BackboneError: The `reset_parameters` of a module leave tensors unchanged, or a file
                builds its network with the same weights each time.
        """
        checkpoint = self.checkpoint and replace(self.checkpoint, random=True)
        if self.is_resnet:
            encoder = random_backbone(arch=self.arch, stem=self.stem, seed=0, input=self.input)
            return replace(encoder, checkpoint=checkpoint)
        weights = self._random_weights(seed=0)
        other_weights = self._random_weights(seed=1)
        random_names = [
            name
            for name, value in other_weights.items()
            if value.is_floating_point() and value.numel() > 1
            if value.min() != value.max()  # excludes new norm layers
        ]
        unchanged = [name for name in random_names if other_weights[name].equal(weights[name])]
        # a source may contain fixed tables next to random weights
        if unchanged and (self.module is not None or unchanged == random_names):
            raise BackboneError(
                f"{self.arch} cannot be initialized at random: {', '.join(unchanged[:6])} do not "
                "change. Give their modules reset_parameters, and leave weights to the checkpoint"
            )
        return replace(
            self,
            name="random",
            state_dict=weights,
            made_by={"method": UNTRAINED, "seed": 0},
            declared="",
            source=f"{UNTRAINED} of {self.arch}, seed 0",
            file_sha256="",
            sha256=library_sha256(self.options, self.library, self.input, weights),
            file="",
            checkpoint=checkpoint,
        )

    random_twin = with_random_weights
    """Former name of `with_random_weights`, for one release."""

    def features(
        self,
        images: Iterable[Image.Image | NDArray[np.uint8] | Tensor],
        *,
        resize_px: int | None = None,
    ) -> Tensor:
        """Compute the features of images, which equal those that tasks compute.

        Args:
            images: Pillow images, arrays (H, W, 3) or tensors (3, H, W), uint8 RGB of any size.
            resize_px: The short side is resized to this size, and the center crop of S x S px is
                normalized. Default: the input size S.

        Returns:
            Features (n, C), float32 on the CPU.

        Raises:
            FeatureError: An image has another type.
            NotFiniteError: The features of an image are not finite.
        """
        from transfer.frozen.on_images import image_features

        return image_features(self, images, resize_px=resize_px)

    @classmethod
    @argument_names()
    def from_file(
        cls,
        path: Path | str,
        *,
        encoder: str,
        pool: Pool = "",
        size_px: int = 0,
        mean: Iterable[float] = (),
        std: Iterable[float] = (),
        branch: str = "",
        name: str | None = None,
    ) -> Encoder:
        """Open a checkpoint file of a network that is not a torchvision-style ResNet.

        Args:
            path: Checkpoint file, or its address on the Hugging Face hub.
            encoder: timm:NAME, torchvision:NAME, hf:FOLDER or FILE.py:FUNCTION.
            pool: Pooling of tokens or maps. Default: as the network defines.
            size_px: Image size, if the encoder does not define it, or to replace its definition.
            mean: Mean of red, green and blue, for pixels from 0 to 1; see `size_px`.
            std: Standard deviation of red, green and blue, for pixels from 0 to 1.
            branch: A part of the network's prefix, if the file contains several networks.
            name: Name of the row in tables. Default: the name of the file or of its folder.

        Returns:
            The encoder.

        Raises:
            BackboneError: The file does not contain exactly one complete network of this kind, or
                its input images are unknown.
        """
        from transfer.encoders.opening import open_file

        options = EncoderOptions(
            encoder=encoder,
            pool=pool,
            input_px=size_px,
            input_mean=tuple(mean),
            input_std=tuple(std),
        )
        return open_file(path, options, name=name, branch=branch)[0]

    @classmethod
    @argument_names()
    @torch_defaults()
    def from_module(
        cls,
        network: nn.Module,
        *,
        size_px: int,
        mean: Iterable[float],
        std: Iterable[float],
        pool: Pool | None = None,
        maps: MapsFunction | None = None,
        name: str = "encoder",
    ) -> Encoder:
        """Copy a network in memory.

        The copy is evaluated in eval mode and float32, without DataParallel,
        DistributedDataParallel and torch.compile.

        Args:
            network: Maps images (n, 3, size_px, size_px), normalized by mean and std, to features
                (n, C). It may also return tokens (n, T, C) or maps (n, C, H, W), with `pool`.
            size_px: Image size.
            mean: Mean of red, green and blue, for pixels from 0 to 1.
            std: Standard deviation of red, green and blue, for pixels from 0 to 1.
            pool: Pooling of tokens or maps.
            maps: Function for dense tasks. It takes the network and images (n, 3, S, S) of any size
                S and returns maps (n, C, h, w). It is not needed if the network returns tokens or
                maps.
            name: Name of the row in tables.

        Returns:
            The encoder.

        Raises:
            BackboneError: The network returns anything else, it cannot be copied, or its features
                depend on more than the image.
        """
        from transfer.encoders.modules import copy_of, module_source
        from transfer.encoders.opening import encoder_of_network

        module = copy_of(network)
        class_name = f"{type(module).__module__}.{type(module).__qualname__}"
        input_format = InputFormat(size_px=size_px, mean=mean, std=std)  # type: ignore[arg-type]
        options = EncoderOptions(
            encoder=class_name,
            pool=pool or "",
            input_px=input_format.size_px,
            input_mean=input_format.mean,
            input_std=input_format.std,
        )
        built = module_source(module, maps)
        return encoder_of_network(built, options, name, f"{class_name}, in memory", module, maps)


def with_heads(backbone: Encoder, heads: Sequence[int]) -> Encoder:
    """Return the backbone with only these heads, in this order.

    The features of the heads are concatenated. Head 0 of LooC++ is invariant to all augmentations;
    its recipe names the other heads. A single head gives an ordinary ResNet. Raises ValueError if a
    head does not exist or is repeated.
    """
    count, requested = backbone.num_heads, tuple(heads)
    if not count:
        raise ValueError(f"{backbone.arch} has no heads")
    if not requested or len({*requested} & {*range(count)}) < len(requested):
        raise ValueError(
            f"heads {requested} of {backbone.name} are requested; it has heads 0 to {count - 1}"
        )
    if requested == tuple(range(count)):
        return backbone
    network, is_single = network_and_heads(backbone.arch)[0], len(requested) == 1
    state_dict = {}
    for name, tensor in backbone.state_dict.items():
        match = re.fullmatch(r"layer4\.(\d+)\.(.+)", name)
        if match is None:
            state_dict[name] = tensor
        elif int(match[1]) in requested:
            index = "" if is_single else f"{requested.index(int(match[1]))}."
            state_dict[f"layer4.{index}{match[2]}"] = tensor
    arch = network if is_single else f"{network}-heads{len(requested)}"
    listed = "+".join(map(str, requested))
    return replace(
        backbone,
        name=f"{backbone.name}-heads{listed}",
        arch=arch,
        state_dict=state_dict,
        made_by={**backbone.made_by, "heads": _head_names(backbone, requested)},
        source=f"{backbone.source}, heads {listed} of {count}",
        sha256=content_sha256(arch, backbone.stem, backbone.input, state_dict),
        file="",
        checkpoint=backbone.checkpoint and replace(backbone.checkpoint, heads=requested),
    )


def _head_names(backbone: Encoder, heads: Sequence[int]) -> list[str]:
    """Return the augmentation that each head is sensitive to, or its number.

    Head 0 is "invariant". The number is used if the augmentation is unknown.
    """
    settings = backbone.made_by.get("settings")
    designated = settings.get("config.designated") if isinstance(settings, dict) else None
    names = ["invariant", *map(str, designated)] if isinstance(designated, list) else []
    return [names[head] if head < len(names) else str(head) for head in heads]


def content_sha256(
    arch: str, stem: Stem, input: InputFormat, state_dict: Mapping[str, Tensor]
) -> str:
    """Return a hash of everything that determines the features.

    It does not depend on the file format.
    """
    import torch

    digest = hashlib.sha256(json.dumps([arch, stem, asdict(input)]).encode())
    for name, tensor in sorted(state_dict.items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data)
    return digest.hexdigest()


GENERIC_WORDS = {
    *("backbone", "encoder", "model", "models", "network", "net", "head", "pytorch", "pretrained"),
    *("checkpoint", "ckpt", "snapshot", "weights", "state", "dict", "pth", "pt", "tar", "of"),
    *("best", "last", "latest", "final", "epoch", "ep", "step", "iter", "iteration", "phase"),
    *("student", "teacher", "ema"),
}
"""Words of file names that do not identify a run."""
RUN_SUBFOLDERS = ("checkpoints", "ckpts", "snapshots", "weights")
"""Subfolders of a run's folder that do not identify the run."""


def default_name(path: Path) -> str:
    """Return the default name of a checkpoint in tables.

    It is the file name without .pth, .pt, .ckpt or .pth.tar. For names that every run writes, such
    as backbone.pt, it is the name of the run's folder. For such names with a number, such as
    checkpoint_0199.pth.tar, it is both.
    """
    if address := address_of(path):  # the cache names the folder of a file after its commit
        repo, _, file = address.removeprefix("hf://").partition("@")
        path = Path(repo.partition("/")[2]) / file.partition("/")[2]
    stem = re.sub(r"\.(pth|pt|ckpt)$", "", path.stem)
    tokens = re.findall(r"[^\W\d_]+", stem.lower())
    if not GENERIC_WORDS.issuperset(tokens):
        return stem
    folder = Path(os.path.realpath(path.parent))
    names = [parent.name for parent in (folder, *folder.parents)]
    run = next((name for name in names if name and name not in RUN_SUBFOLDERS), "")
    has_number = any(letter.isdigit() for letter in stem)
    name_parts = [run, stem if has_number or not run else ""]
    return "-".join(filter(None, name_parts))


def random_backbone(
    *, arch: str, stem: Stem, seed: int, input: InputFormat | None = None, name: str = "random"
) -> Encoder:
    """Return torchvision's initialization for a seed.

    The state of the global generator is unchanged.
    """
    import torch

    from transfer.encoders.resnets import build_resnet

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        state_dict: dict[str, Tensor] = dict(build_resnet(arch, stem).state_dict())
    input = input or default_input_format(stem)
    return Encoder(
        name=name,
        arch=arch,
        stem=stem,
        state_dict=state_dict,
        input=input,
        made_by={"method": UNTRAINED, "seed": seed},
        source=f"{UNTRAINED} of {arch}, {stem} stem, seed {seed}",
        sha256=content_sha256(arch, stem, input, state_dict),
    )


def default_input_format(stem: Stem) -> InputFormat:
    """Return the usual input format of third-party checkpoints with this stem."""
    return InputFormat(size_px=224 if is_large(stem) else 32)


def library_sha256(
    options: EncoderOptions, library: str, input_format: InputFormat, weights: dict[str, Tensor]
) -> str:
    """Return the hash of an encoder that is not a ResNet."""
    network = json.dumps([options.label, options.pool, library])
    return content_sha256(network, "", input_format, weights)  # type: ignore[arg-type]
