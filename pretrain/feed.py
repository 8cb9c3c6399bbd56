"""Batches of views, step by step: from decoded pixels in memory, or from files by workers.

Small sets are decoded once and every view is made on the device that trains; large ones are
decoded and cropped by workers, each image once for all its views, and colored on the device.
"""

import signal
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn.functional import interpolate
from torch.utils.data import DataLoader, Dataset

from pretrain.augment import crop, finish
from pretrain.data import BatchPlan, TrainingImages, read_pixels
from pretrain.views import Floats, ViewRecipe, draw_boxes, draw_colors, uniforms


@dataclass(frozen=True, kw_only=True)
class Feed:
    """What a step needs besides its number: images, their order, and the recipe of the views."""

    images: TrainingImages
    plan: BatchPlan
    recipe: ViewRecipe
    num_views: int
    device: torch.device
    workers: int
    memory_gb: float

    @property
    def in_memory(self) -> bool:
        """Whether all images, padded to the largest, fit into `memory_gb`."""
        largest = int(self.images.heights.max()) * int(self.images.widths.max()) * 3
        return largest * len(self.images) <= self.memory_gb * 1e9

    def batches(self, first_step: int, num_steps: int) -> Iterator[list[Tensor]]:
        """V views of (n, 3, S, S) for each step from `first_step` to `num_steps`."""
        crops = self._memory_crops if self.in_memory else self._file_crops
        for epoch, indices, images in crops(first_step, num_steps):
            numbers = self._uniforms(epoch, indices)
            views = finish(images, draw_colors(self.recipe, numbers), self.recipe)
            yield list(views.chunk(self.num_views))

    def _uniforms(self, epoch: int, indices: NDArray[np.int64]) -> Floats:
        """(V * n, NUM_UNIFORMS), the first view of all images first."""
        drawn = [uniforms(self.plan.seed, epoch, int(i), self.num_views) for i in indices]
        return np.stack(drawn, axis=1).reshape(self.num_views * len(indices), -1)

    def _memory_crops(
        self, first_step: int, num_steps: int
    ) -> Iterator[tuple[int, NDArray[np.int64], Tensor]]:
        pixels = decode_all(self.images).to(self.device)
        for step in range(first_step, num_steps):
            epoch, indices = self.plan.batch(step)
            repeated = np.tile(indices, self.num_views)
            boxes = draw_boxes(
                self.recipe,
                self._uniforms(epoch, indices),
                self.images.heights[repeated],
                self.images.widths[repeated],
            )
            chosen = pixels[torch.from_numpy(repeated).to(self.device)]
            yield epoch, indices, crop(chosen, boxes, self.recipe.size_px)

    def _file_crops(
        self, first_step: int, num_steps: int
    ) -> Iterator[tuple[int, NDArray[np.int64], Tensor]]:
        steps = range(first_step, num_steps)
        keys = (
            [(epoch, int(index)) for index in indices]
            for epoch, indices in map(self.plan.batch, steps)
        )
        # one loader for all epochs: workers never wait for a next one to start
        loader = DataLoader(
            _Crops(self),
            batch_sampler=_Once(keys),
            num_workers=self.workers,
            pin_memory=self.device.type == "cuda",
            worker_init_fn=_ignore_signals,
        )
        for step, stacked in zip(steps, loader, strict=True):
            images = stacked.to(self.device, non_blocking=True).transpose(0, 1).flatten(0, 1)
            epoch, indices = self.plan.batch(step)
            yield epoch, indices, images.float().div_(255)


def decode_all(images: TrainingImages) -> Tensor:
    """Pixels (N, 3, H, W), uint8, of all images, smaller ones padded by zeros below and right."""
    pixels = torch.zeros(
        len(images), 3, int(images.heights.max()), int(images.widths.max()), dtype=torch.uint8
    )
    for place, file in enumerate(images.files):
        image = read_pixels(file)
        pixels[place, :, : image.shape[0], : image.shape[1]] = image.permute(2, 0, 1)
    return pixels


class _Once:
    """An iterator that a DataLoader takes for a batch sampler."""

    def __init__(self, batches: Iterator[list[tuple[int, int]]]) -> None:
        self.batches = batches

    def __iter__(self) -> Iterator[list[tuple[int, int]]]:
        return self.batches


class _Crops(Dataset[Tensor]):
    """The crops of one image, decoded once: (V, 3, S, S), uint8."""

    def __init__(self, feed: Feed) -> None:
        self.feed = feed

    def __getitem__(self, key: tuple[int, int]) -> Tensor:
        epoch, index = key
        feed = self.feed
        pixels = read_pixels(feed.images.files[index])
        numbers = uniforms(feed.plan.seed, epoch, index, feed.num_views)
        sizes = np.tile(np.array(pixels.shape[:2], dtype=np.int64), (feed.num_views, 1))
        boxes = draw_boxes(feed.recipe, numbers, sizes[:, 0], sizes[:, 1])
        image = pixels.permute(2, 0, 1)[None]  # channels last in memory: the fast resize
        return torch.cat(
            [
                interpolate(
                    image[:, :, top : top + height, left : left + width],
                    size=(feed.recipe.size_px, feed.recipe.size_px),
                    mode="bilinear",
                    antialias=True,
                )
                for top, left, height, width in boxes.tolist()
            ]
        )


def _ignore_signals(worker: int) -> None:
    """The main process decides when to stop; a scheduler signals every process of a job."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
        signal.signal(number, signal.SIG_IGN)
