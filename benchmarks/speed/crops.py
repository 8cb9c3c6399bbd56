"""Crops of photographs for frozen networks, made on one core, against torchvision's usual pipeline.

The usual one takes RandomResizedCrop and RandomHorizontalFlip of Pillow's image. Ours is timed with
normalization on the CPU, as bytes, which a GPU normalizes, and from images that are kept decoded,
as those of a set that fits into memory are. So are the training batches of fine-tuning with few
labels, the evaluation transform, from which features are extracted, and decoding, the limit.
"""

import random
import sys
from dataclasses import dataclass, field
from pathlib import Path

import torch

from benchmarks.gpu.timing import one_thread
from benchmarks.speed.harness import compare
from benchmarks.speed.views import usual_batches
from pretrain.data.views import ViewRecipe
from pretrain.parts.view import View
from pretrain.running.command_line import parse
from pretrain.running.host_memory import image_memory
from transfer.datasets.folders import data_folder
from transfer.datasets.images import class_names, read_class_folders
from transfer.encoders.encoder import InputFormat
from transfer.finetuning.classification import training_samples
from transfer.frozen.crops import RandomCrops
from transfer.frozen.extraction import EvalImages, raw_batches
from transfer.frozen.kept_images import with_kept_pixels
from transfer.frozen.transforms import EvalTransform, Normalization

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


def run(settings: Settings) -> None:
    """Compare one pass over the images."""
    found = read_class_folders(settings.data, settings.data, class_names(settings.data))
    count = min(settings.images, len(found))
    images, px = found.subset(random.Random(0).sample(range(len(found)), count)), settings.crop_px
    usual = ViewRecipe(
        size_px=px,
        crop_area=(0.08, 1.0),
        jitter_probability=0,
        gray_probability=0,
        blur_probability=0,
    )
    files = [settings.data / images.name(i) for i in range(count)]
    normalize = Normalization(InputFormat(size_px=px), torch.device("cpu"))
    with image_memory(MOST_GB):
        kept = with_kept_pixels(images, num_crops=2 * count)
    evaluated = EvalImages(images, EvalTransform.center(px, margin_px=32))
    crops, from_kept = RandomCrops(images, px, 0), RandomCrops(kept, px, 0)
    samples = training_samples(images, px, 0)
    places = [(index, index) for index in range(count)]
    with one_thread():
        compare(
            f"{count} images, crops of {px} px, one core",
            {
                "torchvision": lambda: list(usual_batches(usual, [View()], files, count)),
                "decode, crop, normalized": lambda: normalize(crops(places)[0]),
                "decode, crop, bytes": lambda: crops(places)[0],
                "kept images: crop, normalized": lambda: normalize(from_kept(places)[0]),
                "kept images: crop, bytes": lambda: from_kept(places)[0],
                "fine-tuning: decode, crop, bytes": lambda: samples.batch(places),
                "evaluation": lambda: list(raw_batches(evaluated, 0, pinned=False)),
                "decoding alone": lambda: [images.source.read(i) for i in range(count)],
            },
            settings.rounds,
            num_images=count,
        )


if __name__ == "__main__":
    run(parse(Settings, sys.argv[1:], description=__doc__))
