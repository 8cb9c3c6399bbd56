"""The stand-in for ImageNet-C: corruptions of ImageNet-100's test images, made on this machine.

`make_corruptions.py` writes them. Once all are there it writes a manifest with the package, the
kinds of corruption and the images. Without the manifest the set is unfinished; with it, a missing
image is known by its name.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from pretrain.running.atomic_files import write_whole
from transfer.datasets.expected import DataError, Sizes
from transfer.datasets.imagenet.imagenet import imagenet100_wnids
from transfer.datasets.imagenet.imagenet_c import (
    KINDS,
    MAIN_KINDS,
    SEVERITIES,
    small_corruption_sizes,
    write_small_corruptions,
)
from transfer.datasets.images import Images, image_files
from transfer.datasets.info import SmallVersion, info

FOLDER = "imagenet-c-made"
MANIFEST_FILE = "made.json"


@dataclass(frozen=True, kw_only=True)
class Manifest:
    """The content of the folder, and who made it."""

    package: str
    version: str
    kinds: tuple[str, ...]
    """Kinds of corruption, each at all five severities."""
    source: str
    """Fingerprint of the test images that were corrupted."""
    images: tuple[str, ...]
    """WNID/FILE of each of them, its name in every KIND/SEVERITY."""

    @property
    def maker(self) -> str:
        """Name and version of the package."""
        return f"{self.package} {self.version}"


def write_manifest(file: Path, manifest: Manifest) -> None:
    """Write the manifest whole or not at all; WriteError if that fails."""
    write_whole(file, (json.dumps(asdict(manifest), indent=1) + "\n").encode(), "--data")


def read_manifest(file: Path) -> Manifest | None:
    """Return the manifest, or None if there is no such file; DataError if it cannot be parsed."""
    try:
        content = json.loads(file.read_text())
        return Manifest(**(content | {name: tuple(content[name]) for name in ("kinds", "images")}))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{file}: it cannot be read ({error}); remove its folder and run make-corruptions again"
        ) from error


def read_imagenet_c100_made(data: Path, split: str, sizes: Sizes) -> Images:
    """Read imagenet-c-made/KIND/SEVERITY/WNID/*.JPEG, every image that the manifest names."""
    if split != "test":
        raise DataError(f"the set has a test split only, and {split!r} was asked for")
    manifest = read_manifest(data / FOLDER / MANIFEST_FILE)
    if manifest is None:
        raise DataError(
            f"{FOLDER} has no {MANIFEST_FILE}, so it is unfinished; "
            "run make-corruptions again, which goes on where it stopped"
        )
    absent = [kind for kind in manifest.kinds if not (data / FOLDER / kind).is_dir()]
    if absent:
        raise DataError(
            f"{len(absent)} of {len(manifest.kinds)} corruptions are missing: {absent[:4]}"
        )
    wnids = sorted({image.split("/")[0] for image in manifest.images})
    label_of = {wnid: label for label, wnid in enumerate(wnids)}
    names = [
        f"{FOLDER}/{kind}/{severity}/{image}"
        for kind in manifest.kinds
        for severity in SEVERITIES
        for image in manifest.images
    ]
    return image_files(data, names, [label_of[n.split("/")[3]] for n in names], wnids)


def describe_maker(data: Path) -> list[str]:
    """Return a sentence that names the package and the corruptions that it lacks."""
    manifest = read_manifest(data / FOLDER / MANIFEST_FILE)
    if manifest is None:
        return []
    absent = ", ".join(kind for kind in KINDS if kind not in manifest.kinds)
    return [f"corruptions made by {manifest.maker}, {len(manifest.kinds)} kinds, no {absent}"]


def _write_small(data: Path, rng: np.random.Generator) -> None:
    """Write the images and the manifest, in the name of `generate-data`."""
    write_small_corruptions(data / FOLDER, MAIN_KINDS, rng)
    first = data / FOLDER / MAIN_KINDS[0] / str(SEVERITIES[0])
    files = sorted(file.relative_to(first).as_posix() for file in first.rglob("*.JPEG"))
    manifest = Manifest(
        package="generate-data", version="1", kinds=MAIN_KINDS, source="", images=tuple(files)
    )
    write_manifest(data / FOLDER / MANIFEST_FILE, manifest)


DATASETS = {
    "imagenet_c100_made": info(
        "imagenet_c100_made",
        departures=describe_maker,
        known_classes=imagenet100_wnids,
        read=read_imagenet_c100_made,
        small=SmallVersion(sizes=small_corruption_sizes(len(MAIN_KINDS)), write=_write_small),
    ),
}
