"""Random crops of photographs: torchvision's usual pipeline against that of frozen networks.

    python -m benchmarks.speed.bench_crops --data DIR

Both ways run on the same files in one process on one thread, in turn; the order changes every round
and processor time is compared. The usual pipeline decodes with Pillow, takes RandomResizedCrop and
RandomHorizontalFlip of the whole image, converts to normalized float32 and collates. Ours is timed
with normalization on this CPU, without it (a GPU normalizes bytes), from images that are kept
decoded, as those of a set that fits into memory are, and for decoding alone. So are the bytes of
the evaluation transform, from which features are extracted, and the training batches of fine-tuning
with few labels.
"""

import random
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import cv2
import numpy as np
import torch
from PIL import Image
from torch import Tensor
from torchvision.transforms import v2

from benchmarks.speed.clock import seconds
from benchmarks.speed.command import run_benchmark
from transfer.backbone import InputFormat
from transfer.datasets.class_folders import class_names, read_class_folders
from transfer.datasets.images import Images
from transfer.finetuning.classification import TrainingSamples
from transfer.frozen.crops import RandomCrops, RandomView
from transfer.frozen.extraction import EvalImages, raw_batches
from transfer.frozen.kept_images import keep_images
from transfer.frozen.transforms import EvalTransform, Normalization
from transfer.running.folders import data_folder
from transfer.running.memory import image_memory

MOST_GB = 1e3
"""Limit of the kept images; what a user asks for must fit anyway."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of the comparison."""

    data: Path = field(default_factory=data_folder)
    """Folder of class folders with photographs."""
    images: int = 256
    """Photographs in a batch, drawn at random."""
    crop_px: int = 224
    rounds: int = 5
    """Number of times that each way is timed."""


def photographs(folder: Path, number: int) -> Images:
    """Return some of the images below a folder of class folders; the same at every call."""
    images = read_class_folders(folder, folder, class_names(folder))
    chosen = random.Random(0).sample(range(len(images)), min(number, len(images)))
    return images.subset(chosen)


def usual_pipeline(images: Images, folder: Path, form: InputFormat) -> Callable[[], Tensor]:
    """Return a function that makes the batch of one pass over the images as most code does."""
    transform = v2.Compose(
        [
            v2.RandomResizedCrop(form.size_px, antialias=True),
            v2.RandomHorizontalFlip(),
            v2.ToImage(),
            v2.ToDtype(torch.float32, scale=True),
            v2.Normalize(list(form.mean), list(form.std)),
        ]
    )
    files = [folder / images.name(i) for i in range(len(images))]

    def crop(file: Path) -> Tensor:
        with file.open("rb") as content:
            crop: Tensor = transform(Image.open(content).convert("RGB"))
            return crop

    return lambda: torch.utils.data.default_collate([crop(file) for file in files])


def ways(images: Images, folder: Path, crop_px: int) -> dict[str, Callable[[], object]]:
    """Return the ways to time, the usual one first; each makes one pass over the images."""
    form = InputFormat(size_px=crop_px)
    normalize = Normalization(form, torch.device("cpu"))
    view = RandomView(px=crop_px)
    with image_memory(MOST_GB):
        kept = keep_images(images, num_crops=2 * len(images))
    evaluated = EvalImages(images, EvalTransform.center(crop_px, margin_px=32))
    crops, from_kept = RandomCrops(images, view, 0), RandomCrops(images, view, 0, kept)
    samples = TrainingSamples(images, crop_px, 0)
    places = [(index, index) for index in range(len(images))]
    return {
        "usual": usual_pipeline(images, folder, form),
        "normalized": lambda: normalize(crops(places)[0]),
        "bytes": lambda: crops(places),
        "kept, normalized": lambda: normalize(from_kept(places)[0]),
        "kept": lambda: from_kept(places),
        "fine-tuning": lambda: samples.batch(places),
        "evaluation": lambda: list(raw_batches(evaluated, 0, pinned=False)),
        "decoding": lambda: [images.source.read(index) for index in range(len(images))],
    }


def times(work: dict[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Return the processor times of each way in s, one per round."""
    durations: dict[str, list[float]] = {name: [] for name in work}
    for turn in range(-1, rounds):  # the first run of each is not counted
        for name in list(work)[:: -1 if turn % 2 else 1]:
            start = seconds()
            work[name]()
            if turn >= 0:
                durations[name].append(seconds() - start)
    return durations


def ratio(slow: Sequence[float], fast: Sequence[float]) -> float:
    """Return the median over the rounds of the ratio of times."""
    return median(a / b for a, b in zip(slow, fast, strict=True))


def run(settings: Settings) -> None:
    """Print the ratios."""
    torch.set_num_threads(1)
    cv2.setNumThreads(1)  # OpenCV, which resizes our crops, has threads of its own
    images = photographs(settings.data, settings.images)
    sizes = np.array([images.source.read(i).shape[:2] for i in range(len(images))])
    height, width = np.median(sizes, axis=0)
    print(f"{len(images)} images, median {width:.0f} x {height:.0f} px, to {settings.crop_px} px")
    work = ways(images, settings.data, settings.crop_px)
    found = times(work, settings.rounds)
    for name, what in (
        ("normalized", "decode, crop, normalized batch"),
        ("bytes", "decode, crop, batch of bytes"),
        ("kept, normalized", "crop of kept images, normalized batch"),
        ("kept", "crop of kept images, batch of bytes"),
        ("fine-tuning", "fine-tuning: decode, crop, batch of bytes"),
        ("evaluation", "evaluation transform, batches of bytes"),
        ("decoding", "decoding alone, the limit"),
    ):
        times_as_fast = ratio(found["usual"], found[name])
        print(f"{what}: {times_as_fast:.2f} times as fast as the usual one, ", end="")
        print(rates(found[name], len(images)))
    print(f"usual pipeline: {rates(found['usual'], len(images))}")


def rates(durations: Sequence[float], num_images: int) -> str:
    """Return images and passes over all images in a second, for passes of these times in s."""
    seconds_each = median(durations)
    return f"{num_images / seconds_each:,.0f} images/s, {1 / seconds_each:.2f} passes/s"


def main(words: list[str]) -> int:
    """Run the command line; return its exit status."""
    return run_benchmark(Settings, words, __doc__, run)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
