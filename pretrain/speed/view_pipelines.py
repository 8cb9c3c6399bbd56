"""The pipelines that bench_views.py compares: ours for workers, and torchvision's usual one.

The pipelines read the same files in turns on one thread of this process, and processor time is
measured.
"""

import random
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import cv2
import numpy as np
import torch
from PIL import Image, ImageFilter
from torch import Tensor
from torch.utils.data import default_collate
from torchvision import transforms

from pretrain.data.feed import Feed, FileViews
from pretrain.data.images import BatchPlan, TrainingImages
from pretrain.data.views import ViewRecipe
from pretrain.parts.view import View
from pretrain.pixels.crop_cpu import worker_threads
from pretrain.recipes.recipe import MOCO_V2_VIEWS, SWAV_VIEWS

BATCH_SIZE = 32


@dataclass(frozen=True, kw_only=True)
class Setting:
    """Views of an image in a paper."""

    name: str
    views: tuple[View, ...]
    """Views of one image, small ones last."""
    recipe: ViewRecipe


SETTINGS = (
    Setting(name="MoCo v2: 2 x 224 px", views=(View(),) * 2, recipe=MOCO_V2_VIEWS),
    Setting(name="JCL: 6 x 224 px", views=(View(),) * 6, recipe=MOCO_V2_VIEWS),
    Setting(
        name="LORAC: 3 x 224 + 5 x 96 px",
        views=(View(),) * 3 + (View(small=True),) * 5,
        recipe=SWAV_VIEWS,
    ),
)


@dataclass(frozen=True, kw_only=True)
class Seconds:
    """Processor time per image in seconds, one entry per round."""

    usual: list[float]
    """Torchvision on PIL images."""
    whole: list[float]
    """Views made by workers from file to normalized values."""
    crops: list[float]
    """Decoding and crops by workers; colors are left to the device that trains."""

    def report(self) -> str:
        """Return images/s and the medians of the rounds' ratios in one line."""
        usual, whole, crops = (
            1 / statistics.median(times) for times in (self.usual, self.whole, self.crops)
        )
        return (
            f"torchvision {usual:.0f} images/s; whole views {whole:.0f}, "
            f"{_ratio(self.usual, self.whole):.1f}x; crops alone {crops:.0f}, "
            f"{_ratio(self.usual, self.crops):.1f}x"
        )


def evenly_spaced(images: TrainingImages, number: int) -> TrainingImages:
    """Return some of the images, at even distances in the order of their names."""
    places = np.linspace(0, len(images) - 1, min(number, len(images))).astype(np.int64)
    return replace(
        images,
        files=images.files.take(places),
        heights=images.heights[places],
        widths=images.widths[places],
    )


def measure(setting: Setting, images: TrainingImages, rounds: int) -> Seconds:
    """Return the times of each pipeline, after one round of warm-up."""
    usual = usual_pipeline(setting)
    whole = make_feed(setting, images, colors_in_workers=True)
    cut = FileViews(make_feed(setting, images, colors_in_workers=False))
    num_steps = whole.plan.steps_per_epoch
    num_images = num_steps * whole.plan.batch_size
    pipelines: tuple[Callable[[int], Iterable[object]], ...] = (
        lambda epoch: usual_batches(usual, images.files[:num_images]),
        lambda epoch: whole.batches(epoch * num_steps, (epoch + 1) * num_steps),
        lambda epoch: map(cut.__getitem__, range(epoch * num_steps, (epoch + 1) * num_steps)),
    )
    times_s = np.zeros((rounds + 1, len(pipelines)))
    random.seed(0)
    torch.manual_seed(0)
    with one_thread():
        for epoch in range(rounds + 1):
            for place, pipeline in enumerate(pipelines):
                started_s = time.process_time()
                deque(pipeline(epoch), maxlen=0)
                times_s[epoch, place] = time.process_time() - started_s
    usual_s, whole_s, crops_s = (times_s[1:] / num_images).T.tolist()
    return Seconds(usual=usual_s, whole=whole_s, crops=crops_s)


def usual_pipeline(setting: Setting) -> Callable[[Path], list[Tensor]]:
    """Return MoCo's code for a file: decode it once, transform it by torchvision for each view."""
    large = usual_transform(setting.recipe)
    small = usual_transform(setting.recipe.small_view_recipe())
    transforms_of_views = [small if view.small else large for view in setting.views]

    def pipeline(file: Path) -> list[Tensor]:
        with Image.open(file) as opened:
            image = opened.convert("RGB")
        return [transform(image) for transform in transforms_of_views]

    return pipeline


def usual_batches(
    pipeline: Callable[[Path], list[Tensor]], files: Sequence[Path]
) -> Iterator[list[Tensor]]:
    """Yield views (n, 3, S, S) of many files, collated as by torch's DataLoader."""
    for start in range(0, len(files), BATCH_SIZE):
        yield default_collate([pipeline(file) for file in files[start : start + BATCH_SIZE]])


def usual_transform(recipe: ViewRecipe) -> Callable[[Image.Image], Tensor]:
    """Return the recipe as MoCo's code has it: image -> (3, S, S).

    Source: github.com/facebookresearch/moco.
    """

    def blur(image: Image.Image) -> Image.Image:
        return image.filter(ImageFilter.GaussianBlur(random.uniform(*recipe.blur_sigma_px)))

    jitter = transforms.ColorJitter(
        recipe.brightness, recipe.contrast, recipe.saturation, recipe.hue
    )
    composed: Callable[[Image.Image], Tensor] = transforms.Compose(
        [
            transforms.RandomResizedCrop(recipe.size_px, recipe.crop_area, recipe.crop_aspect),
            transforms.RandomApply([jitter], p=recipe.jitter_probability),
            transforms.RandomGrayscale(recipe.gray_probability),
            transforms.RandomApply([blur], p=recipe.blur_probability),
            transforms.RandomHorizontalFlip(recipe.flip_probability),
            transforms.ToTensor(),
            transforms.Normalize(recipe.mean, recipe.std),
        ]
    )
    return composed


def make_feed(setting: Setting, images: TrainingImages, *, colors_in_workers: bool) -> Feed:
    """Return the feed of a run in which this process makes the views."""
    return Feed(
        images=images,
        plan=BatchPlan(num_images=len(images), batch_size=min(BATCH_SIZE, len(images)), seed=0),
        recipe=setting.recipe,
        views=setting.views,
        device=torch.device("cpu"),
        workers=0,
        memory_gb=0,
        colors_in_workers=colors_in_workers,
    )


@contextmanager
def one_thread() -> Iterator[None]:
    """Restrict torch and OpenCV to the calling thread."""
    before = torch.get_num_threads(), cv2.getNumThreads()
    torch.set_num_threads(1)
    worker_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before[0])
        cv2.setNumThreads(before[1])


def write_photographs(folder: Path, number: int) -> Path:
    """Write JPEG files of 500 x 375 px with a spectrum like that of photographs."""
    generator = np.random.default_rng(0)
    for place in range(number):
        image = np.full((375, 500, 3), 128.0, dtype=np.float32)
        for octave in range(2, 9):
            noise = generator.standard_normal((2**octave, 2**octave, 3), dtype=np.float32)
            image += 150 / 2**octave * cv2.resize(noise, (500, 375), interpolation=cv2.INTER_CUBIC)
        pixels = image.clip(0, 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{place:04}.jpg", quality=95)
    return folder


def _ratio(usual: list[float], ours: list[float]) -> float:
    return statistics.median(u / o for u, o in zip(usual, ours, strict=True))
