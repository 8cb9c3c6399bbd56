"""An encoder that is no ResNet of torchvision's form: a network, its input and pooling.

It is a `Backbone` for all tasks on frozen features, which see (n, 3, H, W) -> (n, C) alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from transfer.backbone import (
    Backbone,
    BackboneError,
    InputFormat,
    content_sha256,
    default_name,
    file_fields,
    load_backbone,
    norm_words,
)
from transfer.encoders.options import EncoderOptions, Pool
from transfer.process_state import one_thread, torch_defaults

if TYPE_CHECKING:
    from torch import Tensor, nn

    from transfer.convert.inspection import Inspection
    from transfer.encoders.sources import Built

RESNET50_FLOPS = 2 * 4.09e9
"""Floating-point operations of a ResNet-50's forward pass at 224 px, the unit of costs."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Encoder(Backbone):
    """A network of any kind; `arch` holds its source in the user's words, `stem` is empty."""

    options: EncoderOptions
    width: int
    """Feature dimension C, from a forward pass."""
    cost: float
    """Arithmetic of a forward pass at its size, in units of a ResNet-50's at 224 px."""
    library: str
    """Library and version that build the network, or the hash of the user's file."""
    module: nn.Module | None = field(default=None, repr=False)
    """Network of `from_module`; None if it is built from its source."""

    @property
    def feature_dim(self) -> int:
        """Feature dimension C."""
        return self.width

    @property
    def num_heads(self) -> int:
        """Return 0: heads are of LooC++'s ResNets."""
        return 0

    def network(self) -> nn.Module:
        """Return the network (n, 3, H, W) -> (n, C) in eval mode, without gradients."""
        from transfer.encoders.sources import Pooled

        built = self._build()
        built.network.load_state_dict(self.state_dict)
        pooled = Pooled(built, self.options.pool, self.arch)
        return pooled.requires_grad_(False).eval()

    def _build(self) -> Built:
        from transfer.encoders.sources import build, copy_of, module_source

        if self.module is not None:
            return module_source(copy_of(self.module))
        return build(self.options.encoder, self.options.input_px, self.state_dict)

    def _random_weights(self, *, seed: int) -> dict[str, Tensor]:
        import torch

        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = self._build().network
            if self.module is not None:
                for part in network.modules():
                    if callable(reset := getattr(part, "reset_parameters", None)):
                        reset()
        return dict(network.state_dict())

    @torch_defaults()
    def random_twin(self) -> Encoder:
        """Return a random initialization of the same network with the same input.

        BackboneError for a module of which `reset_parameters` leaves tensors as they were, and for
        a file that builds its network with the same weights each time.
        """
        weights = self._random_weights(seed=0)
        others = self.state_dict if self.module is not None else self._random_weights(seed=1)
        drawn = [
            name
            for name, value in others.items()
            if value.is_floating_point() and value.numel() > 1
            if value.min() != value.max()  # not fresh norms
        ]
        kept = [name for name in drawn if others[name].equal(weights[name])]
        # of what a source draws, a fixed table may be left out
        if kept and (self.module is not None or kept == drawn):
            raise BackboneError(
                f"{self.arch} has no random twin: {', '.join(kept[:6])} stay as they were; give "
                "their modules reset_parameters, make fixed tables buffers with persistent=False, "
                "and leave the loading of weights to --ckpt"
            )
        return replace(
            self,
            name="random",
            state_dict=weights,
            made_by={"method": "random initialisation", "seed": 0},
            source=f"random initialisation of {self.arch}, seed 0",
            file_sha256="",
            sha256=_content_hash(self.options, self.library, self.input, weights),
            file="",
            words=(*self.words, "--random") if self.words else (),
        )

    @classmethod
    @torch_defaults()
    def from_file(
        cls, path: Path | str, *, encoder: str, pool: Pool = "", name: str | None = None
    ) -> Encoder:
        """Return the encoder that a source names, with the weights of a file.

        encoder: timm:NAME, torchvision:NAME, hf:FOLDER or FILE.py:FUNCTION. BackboneError as on the
        command line.
        """
        return load_encoder(Path(path), EncoderOptions(encoder=encoder, pool=pool), name=name)[0]

    @classmethod
    @torch_defaults()
    def from_module(
        cls,
        network: nn.Module,
        *,
        size_px: int,
        mean: Iterable[float],
        std: Iterable[float],
        pool: Pool | None = None,
        name: str = "encoder",
    ) -> Encoder:
        """Return an encoder of a network in memory, with a copy of its present weights.

        network: images (n, 3, size_px, size_px), normalized by mean and std, to features (n, C), or
        to tokens (n, T, C) or maps (n, C, H, W) where `pool` says what becomes of them. It is
        evaluated in eval mode and float32, without DataParallel, DistributedDataParallel and
        torch.compile. mean, std: of pixels from 0 to 1. BackboneError for a network that returns
        something else, or whose features depend on more than the image.
        """
        from transfer.encoders.sources import copy_of, module_source

        own = copy_of(network)
        words = f"{type(own).__module__}.{type(own).__qualname__}"
        form = InputFormat(size_px=size_px, mean=mean, std=std)  # type: ignore[arg-type]
        options = EncoderOptions(
            encoder=words,
            pool=pool or "",
            input_px=form.size_px,
            input_mean=form.mean,
            input_std=form.std,
        )
        return _with_facts(module_source(own), options, name, f"{words}, in memory", own)


def load_encoder(
    path: Path, options: EncoderOptions, *, name: str | None = None, branch: str = ""
) -> tuple[Encoder, Inspection]:
    """Return the encoder with the weights of a file, and how it was read.

    branch: a part of the prefix where the file holds several networks. BackboneError, with what was
    found and expected, unless every tensor of the network is in the file in its shape, and every
    other tensor of the file is a head or another named part.
    """
    from transfer.convert.files import read_file
    from transfer.convert.from_public import placed_words, precision_notes
    from transfer.convert.inspection import Inspection
    from transfer.convert.matching import account, choose, find, plan_of, weights_of
    from transfer.convert.naming import brief
    from transfer.convert.proof import fill
    from transfer.encoders.sources import (
        Pooled,
        build,
        left_out_heads,
        loaded_by_transformers,
    )

    try:
        contents = read_file(path)
        built = build(options.encoder, options.input_px, contents.tensors)
        # ask for missing options before checking the file
        _input(built, options)
        Pooled(built, options.pool, options.label)
        if built.folder is None:
            stored = built.network.state_dict()
        else:
            built, stored = loaded_by_transformers(built, path)
        found = find([plan_of(stored, options.label)], contents)
        match, choice = choose(found, contents, options.label, branch)
        heads = left_out_heads(built.network, match.prefix, contents.tensors)
        kinds = account(match, found, contents, heads)
        weights = weights_of(match, contents, stored)
        if built.folder is None:
            fill(built.network, weights)
        elif changed := [
            name for name, values in stored.items() if not values.equal(weights[name])
        ]:
            raise BackboneError(f"transformers changes the values of {brief(changed)}")
        where = f", prefix {match.prefix}" if match.prefix else ""
        source = f"{path.name}: {options.label} layout{where} ({choice})"
        encoder = _with_facts(built, options, name or default_name(path), source)
    except BackboneError as error:
        raise BackboneError(f"{path}: {error}") from error
    encoder = replace(encoder, **file_fields(path, encoder.name, branch, *options.words))
    inspection = Inspection(
        path=str(path),
        layout=options.label,
        prefix=match.prefix,
        arch=options.label,
        stem=encoder.stem,
        kinds=kinds,
        candidates=(match.prefix,),
        choice=choice,
        proof=placed_words(len(match.names), len(weights)),
        num_features=encoder.width,
        notes=(encoder.library, *filter(None, [built.note]), *precision_notes(match, contents)),
        image=_image_words(options, encoder.input),
        norm=norm_words(encoder.input)
        + (", as asked for" if options.input_mean else ", as the source says"),
    )
    return encoder, inspection


def load(
    path: Path, options: EncoderOptions, *, name: str | None = None, branch: str = ""
) -> Backbone:
    """Return the ResNet in a file, or the encoder that the options name, with the file's weights.

    BackboneError, with what was found and expected, if the file does not hold it.
    """
    options.check()
    if options.encoder:
        return load_encoder(path, options, name=name, branch=branch)[0]
    return load_backbone(path, name=name, branch=branch)


def _image_words(options: EncoderOptions, form: InputFormat) -> str:
    size = "as asked for" if options.input_px else "as the source says"
    pool = options.pool or "of its own"
    return f"RGB, {form.size_px} px, {size}; pooling {pool}"


def _with_facts(
    built: Built, options: EncoderOptions, name: str, source: str, module: nn.Module | None = None
) -> Encoder:
    """Return the encoder of a network that has its weights.

    A module's code has no version, so that its features on fixed noise, to three digits, stand for
    it. BackboneError if its features do not depend on the image.
    """
    import torch
    from torch.utils.flop_counter import FlopCounterMode

    from transfer.convert.proof import fixed_images
    from transfer.encoders.sources import Pooled
    from transfer.encoders.trial import check_features, forward

    form = _input(built, options)
    network = Pooled(built, options.pool, options.encoder).eval()
    images = fixed_images(form.size_px)
    # the counter fails on parametrized modules in inference mode
    with torch.inference_mode(False), torch.no_grad(), one_thread():
        with FlopCounterMode(display=False) as counter:
            features = forward(network, images)
        check_features(network, images, features)
        features = features.float()
    library = built.library
    if module is not None:
        digits = (features / features.abs().max() * 1000).round().to(torch.int16).numpy()
        library += f", response {hashlib.sha256(digits.tobytes()).hexdigest()[:8]}"
    weights = dict(built.network.state_dict())
    return Encoder(
        name=name,
        arch=options.label,
        stem="",  # type: ignore[arg-type]
        state_dict=weights,
        input=form,
        made_by={},
        source=f"{source}; {library}; {_image_words(options, form)}",
        file_sha256="",
        sha256=_content_hash(options, library, form, weights),
        options=options,
        width=features.shape[1],
        cost=counter.get_total_flops() / len(features) / RESNET50_FLOPS,
        library=library,
        module=module,
    )


def _input(built: Built, options: EncoderOptions) -> InputFormat:
    """Return the images that the encoder expects; BackboneError where nothing says it."""
    size_px = options.input_px or built.size_px
    mean, std = options.input_mean or built.mean, options.input_std or built.std
    missing = [] if size_px else ["--input-px"]
    missing += ["--input-mean and --input-std"] if mean is None or std is None else []
    if missing:
        raise BackboneError(
            f"nothing says which images {options.encoder} was trained on: {built.unstated}; or "
            f"say {', '.join(missing)}"
        )
    try:
        return InputFormat(size_px=size_px, mean=mean, std=std)
    except BackboneError as error:
        raise BackboneError(f"input of {options.encoder}: {error}") from error


def _content_hash(
    options: EncoderOptions, library: str, form: InputFormat, weights: dict[str, Tensor]
) -> str:
    """Return a hash of all that determines the features."""
    network = json.dumps([options.label, options.pool, library])
    return content_sha256(network, "", form, weights)  # type: ignore[arg-type]
