"""Compare the speed of pre-training views with torchvision's pipeline on one core.

All ways read the same files on one thread. "whole views" makes batches of normalized views, as the
usual pipeline does. "crops alone" leaves color augmentations to the training device.
"""

import random
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import torch
from PIL import Image, ImageFilter
from torch import Tensor
from torch.utils.data import default_collate
from torchvision import transforms

from benchmarks.gpu.timing import one_thread, write_images
from benchmarks.speed.harness import compare
from pretrain.data.feed import Feed
from pretrain.data.images import BatchPlan, TrainingImages
from pretrain.data.listing import find_images
from pretrain.data.views import ViewRecipe
from pretrain.parts.view import View
from pretrain.recipes.recipe import MOCO_V2_VIEWS, SWAV_VIEWS
from pretrain.running.command_line import parse

BATCH_SIZE = 32
LARGE, SMALL = View(), View(small=True)
VIEWS = {
    "MoCo v2: 2 x 224 px": ((LARGE,) * 2, MOCO_V2_VIEWS),
    "JCL: 6 x 224 px": ((LARGE,) * 6, MOCO_V2_VIEWS),
    "LORAC: 3 x 224 + 5 x 96 px": ((LARGE,) * 3 + (SMALL,) * 5, SWAV_VIEWS),
}
"""Views per image and recipes of three papers, small views last."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Settings of the comparison."""

    data: Path | None = None
    """Folder of images. Default: noise with the spectrum of natural images."""
    images: int = 64
    """Number of images to read, drawn at random in batches of 32."""
    rounds: int = 3
    """Number of timed rounds."""


def run(settings: Settings) -> None:
    """Time the views of each paper."""
    with one_thread(), tempfile.TemporaryDirectory() as folder:
        data = settings.data or write_images(Path(folder), settings.images)
        images = find_images(data, tolerated=sys.maxsize)
        for title in VIEWS:
            compare_views(title, images, settings)


def compare_views(title: str, images: TrainingImages, settings: Settings) -> None:
    """Time the views of one paper."""
    views, recipe = VIEWS[title]
    num_steps = max(1, settings.images // BATCH_SIZE)
    plan = BatchPlan(num_images=len(images), batch_size=min(BATCH_SIZE, len(images)), seed=0)
    feed = Feed(
        images=images,
        plan=plan,
        recipe=recipe,
        views=views,
        device=torch.device("cpu"),
        workers=0,
        memory_gb=0,
    )
    crops = replace(feed, colors_on_device=True)
    files = [images.path(index) for step in range(num_steps) for index in plan.batch(step)[1]]
    makers: dict[str, Callable[[], Iterable[object]]] = {
        "torchvision": lambda: usual_batches(recipe, views, files),
        "whole views": lambda: feed.batches(0, num_steps),
        "crops alone": lambda: map(crops.make, range(num_steps)),
    }
    compare(
        f"{title}, {len(files)} images, one core",
        {name: partial(_last, make) for name, make in makers.items()},
        settings.rounds,
        num_images=len(files),
    )


def _last(make: Callable[[], Iterable[object]]) -> object:
    """Make all batches; return the last one."""
    return deque(make(), maxlen=1)[0]


def usual_batches(
    recipe: ViewRecipe, views: Sequence[View], files: Sequence[Path], batch_size: int = BATCH_SIZE
) -> Iterator[list[Tensor]]:
    """Yield batches of views (n, 3, S, S), as torch's loader does."""
    large, small = usual_transform(recipe), usual_transform(recipe.small_view_recipe())

    def make(file: Path) -> list[Tensor]:
        with Image.open(file) as opened:
            image = opened.convert("RGB")
        return [(small if view.small else large)(image) for view in views]

    for start in range(0, len(files), batch_size):
        yield default_collate([make(file) for file in files[start : start + batch_size]])


def usual_transform(recipe: ViewRecipe) -> Callable[[Image.Image], Tensor]:
    """Return the transform of MoCo's code: image -> (3, S, S).

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


if __name__ == "__main__":
    run(parse(Settings, sys.argv[1:], description=__doc__))
