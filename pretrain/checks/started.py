"""Runs that the checks start: a recipe on generated images."""

from dataclasses import fields
from pathlib import Path

import cv2
import numpy as np

from pretrain.checks.place import Place
from pretrain.command import parse
from pretrain.data.images import TrainingImages, find_images
from pretrain.loop import Job
from pretrain.recipes import RECIPES
from pretrain.run import prepare
from pretrain.running.launch import Process
from pretrain.speed.view_pipelines import write_photographs

NUM_CLASSES = 10
"""Folders of the generated images, as many as the small supervised recipes have classes."""

SMALL_VIEWS = ("--small-size-px", "24")
"""Small views that the last stage of a ResNet gets more than one pixel of: from a single pixel,
torch 2.15 computes wrong gradients of bfloat16 convolutions with a stride on CPUs."""

MOST_PHOTOGRAPHS = 64


def generated_images(folder: Path, number: int, height: int = 40, width: int = 48) -> Path:
    """Write JPEG files of colored noise at several scales, in ten folders; return their folder.

    Files that exist are kept.
    """
    generator = np.random.default_rng(0)
    for place in range(number):
        image = np.full((height, width, 3), 128.0, dtype=np.float32)
        for octave in range(1, 8):
            noise = generator.standard_normal((2**octave, 2**octave, 3), dtype=np.float32)
            image += 150 / 2**octave * cv2.resize(noise, (width, height))
        file = folder / f"class{place % NUM_CLASSES}" / f"{place:04}.jpg"
        if not file.exists():
            file.parent.mkdir(parents=True, exist_ok=True)
            cv2.imwrite(str(file), image.clip(0, 255).astype(np.uint8))
    return folder


def small_images(place: Place) -> TrainingImages:
    """Return forty images of 48 x 40 px."""
    return find_images(generated_images(place.folder / "images", 40))


def photographs(place: Place, number: int) -> TrainingImages:
    """Return that many JPEG files of 500 x 375 px, of which at most 64 differ."""
    originals, folder = place.folder / "photographs", place.folder / f"photographs{number}"
    originals.mkdir(exist_ok=True)
    folder.mkdir(exist_ok=True)
    if len(list(originals.iterdir())) < min(number, MOST_PHOTOGRAPHS):
        write_photographs(originals, min(number, MOST_PHOTOGRAPHS))
    files = sorted(originals.iterdir())
    for copy in range(number):
        link = folder / f"{copy:05}.jpg"
        if not link.exists():
            link.hardlink_to(files[copy % len(files)])
    return find_images(folder)


def start_job(
    name: str,
    place: Place,
    images: TrainingImages,
    *options: str,
    out: str = "run",
    process: Process | None = None,
) -> Job:
    """Return the job of a recipe on these images, with further options of its command line.

    process: one of several; else the run has one.
    """
    words = ["--data", str(images.folder), "--out", str(place.folder / out)]
    words += ["--device", place.device.type, "--workers", "0", *options]
    if "num_images" in {field.name for field in fields(RECIPES[name].config)}:
        words += ["--num-images", str(len(images))]
    return prepare(name, parse(name, words), process or place.process, images)
