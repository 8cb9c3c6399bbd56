"""Read what a file says of the images its network was trained on: channels, mean and std.

timm's `args` and torchvision's printed transforms have mean and std of pixels from 0 to 1 in RGB.
OpenMMLab's `Normalize` and `data_preprocessor` (with `to_rgb`) and detectron2's PIXEL_MEAN (with
INPUT.FORMAT) have them in the order that the network sees, mostly of pixels from 0 to 255.
detectron2's first versions store them as tensors.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NoReturn

from torch import Tensor

from transfer.convert.architectures import BackboneError
from transfer.convert.statements import MAX_CONFIG_TEXT, Value, entries_of

Levels = tuple[float, ...]
"""Red, green and blue, or blue first."""

DECIMALS = 9
"""Decimals of a mean or std from 0 to 1, so that 123.675 of 255 is 0.485."""
BGR_MEAN: Levels = (0.406, 0.456, 0.485)
"""ImageNet's mean as networks with channels in BGR have it."""
NEAR = 0.01
"""Largest distance of a mean from BGR_MEAN; Caffe's are rounded."""

_NUMBER = r"[-+]?(?:\d{1,5}(?:\.\d{0,20})?|\.\d{1,20})(?:e[-+]?\d{1,3})?"
_TRIPLE = rf"[\[(]\s*{_NUMBER}(?:\s*,\s*{_NUMBER}){{2}}\s*,?\s*[\])]"
_YAML_TRIPLE = rf"(?:\n\s*-\s+{_NUMBER}){{3}}(?!\n\s*-|[\d.e])"
_OF_IMAGES = r"(?:pixel|image|img|input|norm|normalize|new)_(?:mean|std)"
_IS = r"['\"]?\s?[:=]\s?"
STATED = re.compile(
    rf"(?<![a-z0-9_])(?:(?P<norm>{_OF_IMAGES}|mean|std){_IS}(?P<triple>{_TRIPLE}|{_YAML_TRIPLE})"
    rf"|(?P<flag>to_rgb|bgr_to_rgb|to_bgr|to_bgr255|rgb_to_bgr){_IS}(?P<is_on>true|false)"
    rf"|(?:format|input_space|input_format|image_format|channel_order){_IS}['\"]?"
    r"(?P<channels>rgb|bgr)(?![a-z0-9]))",
    re.IGNORECASE,
)
"""Pattern of the statements in a text; an entry of a dict is searched as `key: value`."""
OF_IMAGES = re.compile(_OF_IMAGES)
PLACE = re.compile(
    r"^$|args|opt|param|conf|cfg|data|input|image|img|norm|process|transform|augment"
)
"""Pattern of the innermost dict's key in which a mere `mean` and `std` are those of images."""
ELSEWHERE = re.compile(r"teacher|target|head|neck|loss|optim|schedul|metric|result")
"""Pattern of keys whose entries describe another network, or numbers of a training."""


@dataclass(frozen=True, kw_only=True)
class StatedInput:
    """The images that a file states; None or False where it says nothing."""

    mean: Levels | None = None
    """Mean of pixels from 0 to 1 in RGB order."""
    std: Levels | None = None
    is_bgr: bool = False
    """True if the network sees the channels in BGR."""
    entries: str = ""
    """The entries of the file, in words."""


def read_input(
    values: Mapping[str, Value], tensors: Mapping[str, Tensor] | None = None
) -> StatedInput:
    """Return what values and tensors of a file, by their names in it, say of its images.

    BackboneError if entries differ, or if they are no normalization of an image.
    """
    means: dict[Levels, str] = {}
    stds: dict[Levels, str] = {}
    orders: dict[str, str] = {}
    for start, text in (*_texts(values), *_texts_of_tensors(tensors or {})):
        for match in STATED.finditer(text):
            words = (start + " ".join(match[0].split()))[:200]
            if match["triple"]:
                norms = means if match["norm"].lower().endswith("mean") else stds
                levels = re.findall(_NUMBER, match["triple"], re.IGNORECASE)
                norms.setdefault(tuple(map(float, levels)), words)
            elif order := _order(match):
                orders.setdefault(order, words)
    entries = ", ".join((*means.values(), *stds.values(), *orders.values()))
    if len(means) > 1 or len(stds) > 1 or len(orders) > 1:
        _refuse(entries, "and these differ")
    mean, std, order = next(iter(means), None), next(iter(stds), None), next(iter(orders), "")
    # 0 and 1 in the entries of OpenMMLab and detectron2 leave pixels from 0 to 255
    unchanged = mean == (0, 0, 0) and std == (1, 1, 1)
    levels = [level for norm in (mean, std) if norm for level in norm]
    are_bytes = max(levels, default=0.0) > 1 or (
        unchanged and (order != "" or "pixel" in entries.lower())
    )
    if are_bytes and not (mean and std):
        _refuse(entries, "for pixels from 0 to 255, but only one of mean and std")
    if not all(0 <= level <= 255 for level in levels) or (std and 0 in std):
        _refuse(entries, "which normalizes no image")
    is_bgr = order == "BGR"
    if are_bytes:
        mean, std = (tuple(level / 255 for level in norm) for norm in (mean, std) if norm)
    mean, std = (norm and tuple(round(level, DECIMALS) for level in norm) for norm in (mean, std))
    if mean and not order:
        is_bgr = all(abs(one - other) < NEAR for one, other in zip(mean, BGR_MEAN, strict=True))
    if is_bgr:
        mean, std = mean and mean[::-1], std and std[::-1]
    return StatedInput(mean=mean, std=std, is_bgr=is_bgr, entries=entries)


def _order(match: re.Match[str]) -> str:
    """Return the channels that an entry states; empty if it says only what is not done."""
    if match["channels"]:
        return match["channels"].upper()
    is_on, is_to_rgb = match["is_on"].lower() == "true", match["flag"].lower().endswith("rgb")
    if is_on:
        return "RGB" if is_to_rgb else "BGR"
    return "BGR" if is_to_rgb else ""  # OpenMMLab reads images by OpenCV, which has BGR


def _texts(values: Mapping[str, Value]) -> Iterator[tuple[str, str]]:
    """Yield the texts to search, each after the words that say where it stands."""
    for key, several in entries_of(values).items():
        *parents, own = key.split(".")
        if any(ELSEWHERE.search(parent.lower()) for parent in parents):
            continue
        for text in several:
            if isinstance(text, str) and len(text) <= MAX_CONFIG_TEXT:
                yield f"{key}: ", text
        start, word = "".join(f"{parent}." for parent in parents), own.lower()
        place = parents[-1].lower() if parents else ""
        if OF_IMAGES.fullmatch(word) or (word in ("mean", "std") and PLACE.search(place)):
            if len(several) == 1 and any(name.endswith(f"{own}.0") for name in values):
                several = several * 3  # a list of one value holds for all channels, as in timm
            for i in range(0, len(several), 3):
                yield start, f"{own}: {tuple(several[i : i + 3])}"
        elif word != "format" or place.endswith("input"):
            yield start, f"{own}: {several[0]}"[:100]


def _texts_of_tensors(tensors: Mapping[str, Tensor]) -> Iterator[tuple[str, str]]:
    """Yield the tensors of three values that are named like the mean and std of images."""
    for name, stored in tensors.items():
        parent, _, own = name.rpartition(".")
        if stored.numel() == 3 and OF_IMAGES.fullmatch(own.lower()):
            levels = (round(level, DECIMALS) for level in stored.flatten().tolist())
            yield f"{parent}." if parent else "", f"{own}: {tuple(levels)}"


def _refuse(entries: str, why: str) -> NoReturn:
    raise BackboneError(
        f"the file says {entries}, {why}; the images that the network takes are unknown. If the "
        f"entries do not describe this network, save its state_dict alone"
    )
