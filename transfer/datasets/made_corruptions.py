"""The stand-in for ImageNet-C: corruptions of ImageNet-100's test images, made here.

`corrupt.py` writes them, and once all are there a manifest: by which package, which kinds, of which
images. Without it the set is unfinished; with it an image that is gone is known by its name.
"""

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from transfer.datasets.expected import Sizes
from transfer.datasets.imagenet_c import KINDS, SEVERITIES
from transfer.datasets.images import DataError, Images, image_files
from transfer.whole_file import write_whole

FOLDER = "imagenet-c-made"
MANIFEST = "made.json"


@dataclass(frozen=True, kw_only=True)
class Made:
    """What is in the folder."""

    package: str
    version: str
    kinds: tuple[str, ...]
    """Each at all five severities."""
    source: str
    """Fingerprint of the test images that were corrupted."""
    images: tuple[str, ...]
    """WNID/FILE of each of them, as it is called in every KIND/SEVERITY."""

    @property
    def maker(self) -> str:
        """Package and version."""
        return f"{self.package} {self.version}"


def write_manifest(file: Path, made: Made) -> None:
    """Write the file whole or not at all; WriteError if that fails."""
    write_whole(file, (json.dumps(asdict(made), indent=1) + "\n").encode(), "--data")


def read_manifest(file: Path) -> Made | None:
    """None where there is no such file; DataError if it is torn."""
    try:
        content = json.loads(file.read_text())
        return Made(**(content | {name: tuple(content[name]) for name in ("kinds", "images")}))
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(
            f"{file}: not readable ({error}); remove its folder, make it anew"
        ) from error


def read_imagenet_c100_made(data: Path, split: str, sizes: Sizes) -> Images:
    """imagenet-c-made/KIND/SEVERITY/WNID/*.JPEG, every one that the manifest promises."""
    if split != "test":
        raise DataError(f"it has a test split only, not {split!r}")
    made = read_manifest(data / FOLDER / MANIFEST)
    if made is None:
        raise DataError(
            f"{FOLDER} has no {MANIFEST}, so it is unfinished; "
            "make-corruptions goes on where it was left"
        )
    absent = [kind for kind in made.kinds if not (data / FOLDER / kind).is_dir()]
    if absent:
        raise DataError(f"{len(absent)} of {len(made.kinds)} corruptions are missing: {absent[:4]}")
    wnids = sorted({image.split("/")[0] for image in made.images})
    label_of = {wnid: label for label, wnid in enumerate(wnids)}
    names = [
        f"{FOLDER}/{kind}/{severity}/{image}"
        for kind in made.kinds
        for severity in SEVERITIES
        for image in made.images
    ]
    return image_files(data, names, [label_of[n.split("/")[3]] for n in names], wnids)


def told_of_made(data: Path) -> list[str]:
    """Who made them, and what is missing from the nineteen."""
    made = read_manifest(data / FOLDER / MANIFEST)
    if made is None:
        return []
    absent = ", ".join(kind for kind in KINDS if kind not in made.kinds)
    return [f"corruptions made by {made.maker}, {len(made.kinds)} kinds, no {absent}"]
