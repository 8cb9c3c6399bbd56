"""Batches of views for each step.

Workers create complete views in eight bits, and the training device normalizes them. Each image is
decoded once for all its views; if all images fit into memory, once for the whole run.
"""

from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import NamedTuple

import cv2
import numpy as np
import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from pretrain.data import augment, augment_device
from pretrain.data.bad_images import BadImages
from pretrain.data.images import BatchPlan, DecodeError, TrainingImages, read_pixels
from pretrain.data.views import (
    ViewRecipe,
    draw_boxes,
    draw_colors,
    draw_style,
    draw_view_numbers,
)
from pretrain.parts.view import View
from pretrain.pixels.crops import crop
from pretrain.pixels.decoding import Pixels
from pretrain.running import stop
from pretrain.running.loader import load_batches


class Batch(NamedTuple):
    """Inputs of a method's `forward` at one step.

    The fraction of the run is not included.
    """

    views: list[Tensor]
    """V of (n, 3, S, S), normalized, channels last."""
    extras: list[Tensor]
    """Labels (n,), then image indices (n,), if used."""


class HostBatch(NamedTuple):
    """A batch as a worker creates it, in host memory."""

    views: list[Tensor]
    """V of (n, S, S, 3), uint8."""
    extras: list[Tensor]
    colors: list[list[Tensor]]
    """For each view, the tensors from `augment_device.color_numbers`.
    Empty if the worker has applied the colors."""


@dataclass(frozen=True, kw_only=True)
class Feed:
    """Source of batches: images, their order, and their views."""

    images: TrainingImages
    plan: BatchPlan
    recipe: ViewRecipe
    views: tuple[View, ...]
    device: torch.device
    workers: int
    memory_gb: float
    bad_images: BadImages
    """Images that do not decode."""
    uses_labels: bool = False
    uses_indices: bool = False
    styles: tuple[Path, ...] = ()
    """Folders with a styled copy of every image."""
    colors_on_device: bool = False
    """Apply the colors on the device, in floating point."""

    @property
    def in_memory(self) -> bool:
        """Return whether the decoded images fit into `memory_gb`."""
        num_bytes = 3 * int((self.images.heights * self.images.widths).sum())
        return not self.styles and num_bytes <= self.memory_gb * 1e9

    @cached_property
    def decoded(self) -> list[Pixels]:
        """All decoded images if they fit into memory.

        Images that do not decode are empty. Raises DecodeError with all bad images if there are
        more than tolerated.
        """
        decoded: list[Pixels] = []
        for index in range(len(self.images) if self.in_memory else 0):
            stop.exit_if_requested()
            try:
                decoded.append(self.images.read(index))
            except DecodeError as error:
                self.bad_images.add(index, error)
                decoded.append(np.empty((0, 0, 3), dtype=np.uint8))
        self.bad_images.check()
        return decoded

    @cached_property
    def recipes(self) -> list[ViewRecipe]:
        """The recipe of each view: first view, other large views, small views."""
        first, second = self.recipe, self.recipe.second_view_recipe()
        small = self.recipe.small_view_recipe()
        return [
            small if view.small else second if index else first
            for index, view in enumerate(self.views)
        ]

    def batches(self, first_step: int, num_steps: int) -> Generator[Batch, None, None]:
        """Yield the batches of steps `first_step` to `num_steps` - 1.

        Closing the generator ends the workers.
        """
        on_gpu = self.device.type == "cuda"
        # decode before the workers start, so that they share the pixels. Training on a CPU uses all
        # cores, and needs no workers for images in memory
        num_workers = 0 if self.decoded and not on_gpu else self.workers
        if not num_workers:
            cv2.setNumThreads(0)  # as in workers
        loaded = load_batches(
            self.make,
            range(first_step, num_steps),
            num_workers=num_workers,
            pin_memory=pin_memory if on_gpu else None,
        )
        with closing(loaded):
            for host_batch in loaded:
                yield self.finish(host_batch)

    def finish(self, host_batch: HostBatch) -> Batch:
        """Return the batch on the training device, with normalized views."""
        views = []
        for index, stack in enumerate(host_batch.views):
            recipe = self.recipes[index]
            images = self._upload(stack).permute(0, 3, 1, 2).float()
            if host_batch.colors:
                numbers, rows, counts = host_batch.colors[index]
                on_device = self._upload(numbers), self._upload(rows)
                images = augment_device.color(images, *on_device, counts.tolist(), recipe)
            views.append(augment.normalize(images, recipe))
        return Batch(views, [self._upload(extra) for extra in host_batch.extras])

    def _upload(self, tensor: Tensor) -> Tensor:
        return tensor.to(self.device, non_blocking=True)

    def make(self, step: int) -> HostBatch:
        """Return the batch of a step.

        Its views are (n, S, S, 3), uint8.
        """
        epoch, planned = self.plan.batch(step)
        # substitutes get the random numbers of the bad images
        draw = partial(draw_view_numbers, self.plan.seed, epoch, views=self.views)
        all_numbers = np.stack([draw(index) for index in planned.tolist()], axis=1)
        indices = self.bad_images.substitute(planned)
        heights, widths = self.images.heights[indices], self.images.widths[indices]
        views = []
        for recipe, numbers in zip(self.recipes, all_numbers, strict=True):
            boxes = draw_boxes(recipe, numbers, heights, widths)
            colors = draw_colors(recipe, numbers)
            styles = np.full(len(indices), -1)
            if self.styles:
                colors.texture[:, 0] = 0  # a styled copy replaces the random filter
                styles = draw_style(recipe, numbers, len(self.styles))
            stack = np.empty((len(indices), recipe.size_px, recipe.size_px, 3), dtype=np.uint8)
            views.append((recipe, boxes, colors, styles, stack))
        for position, index in enumerate(indices.tolist()):
            copies: dict[int, Pixels] = {}
            for recipe, boxes, colors, styles, stack in views:
                style, box = int(styles[position]), boxes[position]
                if style not in copies:
                    try:
                        copies[style] = self._read(index, style)
                    except DecodeError as error:
                        self.bad_images.add(index, error)
                        self.bad_images.check()
                        return self.make(step)  # with a substitute
                pixels, size = copies[style], (heights[position], widths[position])
                if pixels.shape[:2] != size:  # a styled copy may have another size
                    scale = np.array(pixels.shape[:2] * 2) / (size * 2)
                    box = np.maximum((box * scale).astype(np.int64), (0, 0, 1, 1))
                view = crop(pixels, box.tolist(), recipe.size_px)
                if not self.colors_on_device:
                    view = augment.color(view, colors, position, recipe)
                stack[position] = view
        extras = [self.images.labels[indices]] if self.uses_labels else []
        extras += [indices] if self.uses_indices else []
        numbers = [
            augment_device.color_numbers(colors, recipe)
            for recipe, _, colors, *_ in (views if self.colors_on_device else ())
        ]
        stacks = [torch.from_numpy(stack) for *_, stack in views]
        return HostBatch(stacks, [torch.from_numpy(extra) for extra in extras], numbers)

    def _read(self, index: int, style: int) -> Pixels:
        """Return pixels (H, W, 3) of an image or its styled copy."""
        if style >= 0:
            return read_pixels(self.styles[style] / self.images.name(index))
        return self.decoded[index] if self.decoded else self.images.read(index)


def pin_memory(batch: HostBatch) -> HostBatch:
    """Copy a batch to pinned memory, so that GPU copies are asynchronous."""
    pinned: HostBatch = tree_map(Tensor.pin_memory, batch)
    return pinned
