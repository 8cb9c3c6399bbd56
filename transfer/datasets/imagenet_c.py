"""The ImageNet-100 classes of ImageNet-C: Hendrycks and Dietterich, ICLR 2019, arXiv:1903.12261.

Only a test split: every val image under every corruption at every severity. Which these are stands
in an image's name, KIND/SEVERITY/WNID/FILE below the set's folder.
"""

from pathlib import Path

from transfer.datasets.class_folders import class_names, read_class_folders
from transfer.datasets.expected import Sizes
from transfer.datasets.imagenet import imagenet100_wnids
from transfer.datasets.images import DataError, Images, image_files

GROUPS: dict[str, tuple[str, ...]] = {
    "noise": ("gaussian_noise", "shot_noise", "impulse_noise"),
    "blur": ("defocus_blur", "glass_blur", "motion_blur", "zoom_blur"),
    "weather": ("snow", "frost", "fog", "brightness"),
    "digital": ("contrast", "elastic_transform", "pixelate", "jpeg_compression"),
}
"""The fifteen, as the benchmark groups them."""
EXTRA_KINDS = ("speckle_noise", "gaussian_blur", "spatter", "saturate")
"""Published beside them (extra.tar)."""
MAIN_KINDS = tuple(kind for kinds in GROUPS.values() for kind in kinds)
KINDS = MAIN_KINDS + EXTRA_KINDS
SEVERITIES = (1, 2, 3, 4, 5)
FOLDER = "imagenet-c"
VAL_IMAGES = 5_000
"""Of ImageNet-100, under each corruption at each severity."""


def kind_and_severity(name: str) -> tuple[str, int]:
    """Of an image's name."""
    _, kind, severity, *_ = name.split("/")
    return kind, int(severity)


def read_imagenet_c100(data: Path, split: str, sizes: Sizes) -> Images:
    """Reads imagenet-c/KIND/SEVERITY/WNID/*.JPEG of nineteen kinds, or of the fifteen."""
    if split != "test":
        raise DataError(f"it has a test split only, not {split!r}")
    kinds = kinds_there(data)
    absent = [kind for kind in kinds if not (data / FOLDER / kind).is_dir()]
    if absent:
        raise DataError(f"{len(absent)} of {len(kinds)} corruptions are missing: {absent[:4]}")
    listed = set(imagenet100_wnids())
    found = {n for kind in kinds for n in class_names(data / FOLDER / kind / "1") if n in listed}
    wnids = sorted(found)
    names: list[str] = []
    labels: list[int] = []
    for kind in kinds:
        for severity in SEVERITIES:
            part = read_class_folders(data, data / FOLDER / kind / str(severity), wnids)
            names += [part.name(i) for i in range(len(part))]
            labels += part.labels.tolist()
    return image_files(data, names, labels, wnids)


def kinds_there(data: Path) -> tuple[str, ...]:
    """Those to be expected: the fifteen where nothing of extra.tar was unpacked."""
    extra = any((data / FOLDER / kind).is_dir() for kind in EXTRA_KINDS)
    return KINDS if extra else MAIN_KINDS


def unpacked_counts(data: Path) -> dict[str, int]:
    """Published images, with or without those of extra.tar."""
    return {"test": len(kinds_there(data)) * len(SEVERITIES) * VAL_IMAGES}


def told_of_imagenet_c(data: Path) -> list[str]:
    """That the four extra kinds are not there, and what cannot be said without them."""
    if not (data / FOLDER).is_dir() or kinds_there(data) == KINDS:
        return []
    return ["ImageNet-C without extra.tar: 15 kinds, no all19_top1 and no sev3plus19_top1"]
