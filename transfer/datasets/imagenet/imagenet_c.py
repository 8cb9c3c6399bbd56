"""ImageNet-100's test images corrupted: as published, and as made on this machine.

imagenet_c100: the ImageNet-100 classes of ImageNet-C, Hendrycks and Dietterich, ICLR 2019,
arXiv:1903.12261: every val image under every corruption at every severity.
imagenet_c100_made: the stand-in. `make_corruptions.py` writes it; once all images are there it
writes a manifest with the package and the kinds of corruption. Without it, the set is unfinished.

Both have a test split only. An image's name, KIND/SEVERITY/WNID/FILE below the set's folder, holds
corruption and severity.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np

from pretrain.running.atomic_files import write_whole
from transfer.datasets.expected import DataError, Sizes
from transfer.datasets.imagenet.imagenet import (
    imagenet100_wnids,
    paint_small_class,
    small_in100_wnids,
)
from transfer.datasets.images import Images, class_names, image_files, read_class_folders
from transfer.datasets.info import SmallVersion, facts, info, source
from transfer.datasets.synthetic.labeled import write_file
from transfer.datasets.synthetic.patterns import jpeg

GROUPS: dict[str, tuple[str, ...]] = dict(facts()["corruptions"])
"""The fifteen corruptions, in the benchmark's groups."""
EXTRA_KINDS = GROUPS.pop("extra")
"""Four more corruptions, published beside the fifteen (extra.tar)."""
MAIN_KINDS = tuple(kind for kinds in GROUPS.values() for kind in kinds)
KINDS = MAIN_KINDS + EXTRA_KINDS
SEVERITIES = (1, 2, 3, 4, 5)
FOLDER, MADE_FOLDER = "imagenet-c", "imagenet-c-made"
MANIFEST_FILE = "made.json"
VAL_IMAGES = 5_000
"""Images of ImageNet-100 under each corruption at each severity."""


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The content of the folder of made corruptions, and who made it."""

    package: str
    version: str
    kinds: tuple[str, ...]
    """Kinds of corruption, each at all five severities."""
    source: str
    """Fingerprint of the test images that were corrupted."""

    @property
    def maker(self) -> str:
        """Name and version of the package."""
        return f"{self.package} {self.version}"


def kind_and_severity(name: str) -> tuple[str, int]:
    """Return the corruption and the severity of an image, from its name."""
    _, kind, severity, *_ = name.split("/")
    return kind, int(severity)


def read_imagenet_c100(data: Path, split: str, sizes: Sizes) -> Images:
    """Read imagenet-c/KIND/SEVERITY/WNID/*.JPEG of nineteen kinds, or of the fifteen."""
    return _read(data, FOLDER, expected_kinds(data))


def read_imagenet_c100_made(data: Path, split: str, sizes: Sizes) -> Images:
    """Read imagenet-c-made/KIND/SEVERITY/WNID/*.JPEG of the kinds that the manifest names."""
    manifest = read_manifest(data / MADE_FOLDER / MANIFEST_FILE)
    if manifest is None:
        raise DataError(
            f"{MADE_FOLDER} has no {MANIFEST_FILE}: it is unfinished; "
            "run make-corruptions again, which goes on where it stopped"
        )
    return _read(data, MADE_FOLDER, manifest.kinds)


def _read(data: Path, name: str, kinds: Sequence[str]) -> Images:
    folder = data / name
    absent = [kind for kind in kinds if not (folder / kind).is_dir()]
    if absent:
        raise DataError(f"{len(absent)} of {len(kinds)} corruptions are missing: {absent[:4]}")
    folders = {wnid for kind in kinds for wnid in class_names(folder / kind / "1")}
    wnids = sorted(folders.intersection(imagenet100_wnids()))
    names: list[str] = []
    labels: list[int] = []
    for kind in kinds:
        for severity in SEVERITIES:
            part = read_class_folders(data, folder / kind / str(severity), wnids)
            names += [part.name(i) for i in range(len(part))]
            labels += part.label_array.tolist()
    return image_files(data, names, labels, wnids)


def expected_kinds(data: Path) -> tuple[str, ...]:
    """Return all nineteen corruptions, or the fifteen if nothing of extra.tar was unpacked."""
    extra = any((data / FOLDER / kind).is_dir() for kind in EXTRA_KINDS)
    return KINDS if extra else MAIN_KINDS


def unpacked_counts(data: Path) -> dict[str, int]:
    """Return the published number of images, with or without those of extra.tar."""
    return {"test": len(expected_kinds(data)) * len(SEVERITIES) * VAL_IMAGES}


def missing_kinds(data: Path) -> list[str]:
    """Return a sentence if the four extra corruptions are absent: some metrics need them."""
    if not (data / FOLDER).is_dir() or expected_kinds(data) == KINDS:
        return []
    return ["ImageNet-C without extra.tar: 15 kinds, no all19_top1 and no sev3plus19_top1"]


def write_manifest(file: Path, manifest: Manifest) -> None:
    """Write the manifest whole or not at all; WriteError if that fails."""
    write_whole(file, (json.dumps(asdict(manifest), indent=1) + "\n").encode(), "--data")


def read_manifest(file: Path) -> Manifest | None:
    """Return the manifest, or None if there is no such file; DataError if it cannot be parsed."""
    try:
        content = json.loads(file.read_text())
        values = {name: content[name] for name in ("package", "version", "source")}
        return Manifest(kinds=tuple(content["kinds"]), **values)
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{file}: it cannot be read ({error}); remove its folder and run make-corruptions again"
        ) from error


def describe_maker(data: Path) -> list[str]:
    """Return a sentence that names the package and the corruptions that it lacks."""
    manifest = read_manifest(data / MADE_FOLDER / MANIFEST_FILE)
    if manifest is None:
        return []
    absent = ", ".join(kind for kind in KINDS if kind not in manifest.kinds)
    return [f"corruptions made by {manifest.maker}, {len(manifest.kinds)} kinds, no {absent}"]


def _write_corruptions(
    name: str, kinds: Sequence[str], data: Path, rng: np.random.Generator
) -> None:
    """Write NAME/KIND/SEVERITY/WNID/FILE, an image per class, all noise."""
    for kind in kinds:
        for severity in SEVERITIES:
            for number, wnid in enumerate(small_in100_wnids(), start=1):
                pixels = paint_small_class(wnid, rng)
                noisy = pixels + rng.normal(0, 8 * severity, size=pixels.shape)
                file = f"{kind}/{severity}/{wnid}/ILSVRC2012_val_{number:08d}.JPEG"
                write_file(data / name / file, jpeg(np.clip(noisy, 0, 255).astype(np.uint8)))


def _write_small_made(data: Path, rng: np.random.Generator) -> None:
    """Write the images and the manifest, in the name of `generate-data`."""
    _write_corruptions(MADE_FOLDER, MAIN_KINDS, data, rng)
    manifest = Manifest(package="generate-data", version="1", kinds=MAIN_KINDS, source="")
    write_manifest(data / MADE_FOLDER / MANIFEST_FILE, manifest)


def _small_sizes(num_kinds: int) -> Sizes:
    classes = len(small_in100_wnids())
    counts = {"test": classes * num_kinds * len(SEVERITIES)}
    return Sizes(classes=classes, counts=counts, drawn=True)


DATASETS = {
    "imagenet_c100": info(
        "imagenet_c100",
        counts_of_parts=unpacked_counts,
        departures=missing_kinds,
        known_classes=imagenet100_wnids,
        read=read_imagenet_c100,
        small=SmallVersion(
            sizes=_small_sizes(len(KINDS)), write=partial(_write_corruptions, FOLDER, KINDS)
        ),
        sources=(source("imagenet-c"),),
    ),
    "imagenet_c100_made": info(
        "imagenet_c100_made",
        departures=describe_maker,
        known_classes=imagenet100_wnids,
        read=read_imagenet_c100_made,
        small=SmallVersion(sizes=_small_sizes(len(MAIN_KINDS)), write=_write_small_made),
    ),
}
