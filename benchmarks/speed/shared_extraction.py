"""Compare feature extraction of several networks in one and in separate passes.

Both decode and compute on one thread, and write the same files of the feature cache. "decoding
alone" is the time of a pass without a network.
"""

import sys
import tempfile
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from benchmarks.gpu.timing import one_thread
from benchmarks.speed.harness import compare
from pretrain.running.command_line import parse
from transfer.datasets.folders import data_folder
from transfer.datasets.images import Images, class_names, read_class_folders
from transfer.encoders.encoder import Encoder, InputFormat, random_backbone
from transfer.frozen.extraction import EvalImages, extract, raw_batches
from transfer.frozen.transforms import EvalTransform


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of the comparison."""

    data: Path = field(default_factory=data_folder)
    """Folder of images with one folder per class."""
    networks: int = 5
    """Number of networks, with random weights."""
    arch: str = "resnet18"
    """Architecture of the networks."""
    image_px: int = 32
    """Image size of the networks in px; decoding uses full size."""
    rounds: int = 3
    """Number of timed rounds."""


def run(settings: Settings) -> None:
    """Time both ways; ValueError if their features differ."""
    images = read_class_folders(settings.data, settings.data, class_names(settings.data))
    input_format = InputFormat(size_px=settings.image_px)
    networks = [
        random_backbone(arch=settings.arch, stem="imagenet", seed=seed, input=input_format)
        for seed in range(settings.networks)
    ]
    transform = EvalTransform.center(settings.image_px, margin_px=32)
    separate = [[network] for network in networks]
    with one_thread():
        features = compare(
            f"{settings.networks} x {settings.arch} at {settings.image_px} px, "
            f"{len(images)} images, one core",
            {
                "one pass per network": partial(features_by, separate, images, transform),
                "one shared pass": partial(features_by, [networks], images, transform),
                "decoding alone": lambda: list(
                    raw_batches(EvalImages(images, transform), 0, pinned=False)
                ),
            },
            settings.rounds,
            num_images=len(images),
        )
    if features["one pass per network"] != features["one shared pass"]:
        raise ValueError("features differ between the shared pass and separate passes")
    print("the features are equal, byte for byte")


def features_by(
    passes: list[list[Encoder]], images: Images, transform: EvalTransform
) -> list[bytes]:
    """Extract features pass by pass; return the files, ordered by network."""
    with tempfile.TemporaryDirectory() as folder:
        for networks in passes:
            entries = {Path(folder) / f"{network.sha256}.npy": network for network in networks}
            extract(entries, images, transform, "photographs")
        return [file.read_bytes() for file in sorted(Path(folder).glob("*.npy"))]


if __name__ == "__main__":
    run(parse(Settings, sys.argv[1:], description=__doc__))
