"""Batches of views for each step, from decoded pixels in memory or from files by workers.

Small sets are decoded once and every view is made on the device that trains. Large ones are
decoded and cropped by workers, and each image is decoded once for all its views. The workers color
the views as well if a CPU trains; a GPU colors them itself.
"""

import time
from collections.abc import Generator, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from pretrain.data import augment_cpu
from pretrain.data.augment import Constants, color_changes, constants_on, finish, normalize
from pretrain.data.bad_images import BadImages
from pretrain.data.images import BatchPlan, DecodeError, TrainingImages, read_pixels
from pretrain.data.side_stream import Array, pack, unpack
from pretrain.data.views import (
    Colors,
    Floats,
    Integers,
    ViewRecipe,
    draw_boxes,
    draw_colors,
    draw_style,
    draw_view_numbers,
    redraw,
)
from pretrain.parts.view import View
from pretrain.pixels.crops import crop, crop_batch
from pretrain.running.loader import load_batches


class Waiting:
    """A clock that runs while the training process waits for data.

    Waiting for workers and drawing numbers count. Work that is handed to a GPU, uploads among it,
    does not: where the host waits there, it waits for the step before.
    """

    def __init__(self) -> None:
        self.seconds = 0.0

    @contextmanager
    def running(self) -> Iterator[None]:
        """Let the clock run within the context."""
        started_s = time.monotonic()
        yield
        self.seconds += time.monotonic() - started_s


class Batch(NamedTuple):
    """All that a method's `forward` gets of a step besides the share of the run."""

    views: list[Tensor]
    """V of (n, 3, S, S), normalized."""
    extras: list[Tensor]
    """Labels (n,), then places of the images in the set (n,), as far as the method uses them."""


class ViewGroup(NamedTuple):
    """Views of one recipe, which are made and stored together."""

    recipe: ViewRecipe
    rows: slice
    """Places of these views among all V."""


@dataclass(frozen=True, kw_only=True)
class Feed:
    """Source of batches: the images, their order, and the views of each."""

    images: TrainingImages
    plan: BatchPlan
    recipe: ViewRecipe
    views: tuple[View, ...]
    device: torch.device
    workers: int
    memory_gb: float
    uses_labels: bool = False
    uses_indices: bool = False
    styles: tuple[Path, ...] = ()
    """Folders with a styled copy of every image."""
    colors_in_workers: bool = False
    """Coloring of views from files by workers; else by the device."""
    bad_images: BadImages | None = None
    """Images that do not decode, to be replaced; None: the first one ends the run."""
    waiting: Waiting = field(default_factory=Waiting, compare=False)
    """Clock of the time that training waits for data."""

    @property
    def in_memory(self) -> bool:
        """Return whether all images, padded to the largest, fit into `memory_gb`."""
        largest = int(self.images.heights.max()) * int(self.images.widths.max()) * 3
        return not self.styles and largest * len(self.images) <= self.memory_gb * 1e9

    @property
    def view_source(self) -> Literal["memory", "workers", "device"]:
        """Return where crops and colors are computed; the three places round differently."""
        if self.in_memory:
            return "memory"
        return "workers" if self.colors_in_workers else "device"

    @cached_property
    def groups(self) -> list[ViewGroup]:
        """Groups of views: large ones, the first apart if its recipe differs, then small ones."""
        num_small = sum(view.small for view in self.views)
        num_large = len(self.views) - num_small
        second = self.recipe.second_view_recipe()
        num_first = num_large if second == self.recipe else 1
        groups = [
            ViewGroup(self.recipe, slice(0, num_first)),
            ViewGroup(second, slice(num_first, num_large)),
            ViewGroup(self.recipe.small_view_recipe(), slice(num_large, len(self.views))),
        ]
        return [group for group in groups if group.rows.start < group.rows.stop]

    def batches(self, first_step: int, num_steps: int) -> Generator[Batch, None, None]:
        """Yield the batches of steps `first_step` to `num_steps` - 1; close it to end workers."""
        make_views = self._from_memory if self.in_memory else self._from_files
        labels = torch.from_numpy(self.images.labels).to(self.device) if self.uses_labels else None
        with closing(make_views(range(first_step, num_steps))) as made:
            for views, indices in made:
                extras = [] if labels is None else [labels[indices]]
                yield Batch(views, extras + [indices] * self.uses_indices)

    def batch_numbers(self, step: int) -> Floats:
        """Return the numbers (V, n, NUM_UNIFORMS) of this process's images at a step."""
        epoch, indices = self.plan.batch(step)
        numbers = []
        for index in indices.tolist():
            numbers.append(draw_view_numbers(self.plan.seed, epoch, index, self.views))
            draw = self.plan.seed, epoch, index
            redraw(self.recipe, numbers[-1], self.views, *draw, len(self.styles))
        return np.stack(numbers, axis=1)

    def _draw(self, step: int) -> tuple[Integers, list[tuple[Integers, Colors, Integers]]]:
        """Return images (n,) of a step; and boxes, colors and styles of each group's views."""
        _, indices = self.plan.batch(step)
        all_numbers = self.batch_numbers(step)  # a substitute gets the numbers of the bad image
        if self.bad_images is not None:
            indices = self.bad_images.substitute(indices)
        drawn = []
        for recipe, rows in self.groups:
            numbers = all_numbers[rows].reshape(-1, all_numbers.shape[2])
            repeated = np.tile(indices, rows.stop - rows.start)
            sizes = self.images.heights[repeated], self.images.widths[repeated]
            colors, styles = draw_colors(recipe, numbers), np.full(len(numbers), -1)
            if self.styles:
                colors.texture[:, 0] = 0  # a styled copy replaces it
                styles = draw_style(recipe, numbers, len(self.styles))
            drawn.append((draw_boxes(recipe, numbers, *sizes), colors, styles))
        return indices, drawn

    def _from_memory(self, steps: range) -> Generator[tuple[list[Tensor], Tensor], None, None]:
        """Yield the views of each step and the images' indices (n,)."""
        pixels = decode_all(self.images, self.bad_images).to(self.device)
        constants = constants_on(self.device, self.recipe)
        for step in steps:
            with self.waiting.running():
                packed = pack(self._memory_numbers(step))
            if self.device.type == "cuda":
                packed = packed.pin_memory()
            indices, *numbers = unpack(packed, self.device)
            views: list[Tensor] = []
            for (recipe, rows), group in zip(self.groups, self._split(numbers), strict=True):
                repeated, boxes, *changes = group
                images = crop_batch(pixels[repeated], boxes, recipe.size_px)
                finished = finish(images, changes, recipe, constants)
                views += finished.chunk(rows.stop - rows.start)
            yield views, indices

    def _memory_numbers(self, step: int) -> list[Array]:
        """Return indices (n,), then for each group images (V * n,), boxes and color changes."""
        indices, drawn = self._draw(step)
        arrays: list[Array] = [indices]
        for (recipe, rows), (boxes, colors, _) in zip(self.groups, drawn, strict=True):
            repeated = np.tile(indices, rows.stop - rows.start)
            arrays += [repeated, boxes.astype(np.float32), *color_changes(colors, recipe)]
        return arrays

    def _from_files(self, steps: range) -> Generator[tuple[list[Tensor], Tensor], None, None]:
        """Yield the views of each step and the images' indices (n,)."""
        constants = constants_on(self.device, self.recipe)
        on_gpu = self.device.type == "cuda"
        # one loader for all epochs, so that workers do not wait between epochs
        loaded = load_batches(
            self.file_views,
            steps,
            num_workers=self.workers,
            pin=(lambda parts: [p.pin_memory() for p in parts]) if on_gpu else None,
        )
        with closing(loaded) as parts_of_steps:
            for _ in steps:
                with self.waiting.running():
                    *stacks, packed = next(parts_of_steps)
                indices, *numbers = unpack(packed, self.device)
                yield self.finish_views(stacks, numbers, constants), indices

    def file_views(self, step: int) -> list[Tensor]:
        """Return for each group one stack of views (V * n, S, S, 3), uint8, then packed numbers.

        A stack holds the first view of all images, then the second, and so on. Each image is
        decoded once for all its views, and numbers are drawn for all images at once. They are the
        indices (n,), then the color changes of each group if the device makes them.
        """
        indices, drawn = self._draw(step)
        stacks = [
            np.empty((len(boxes), recipe.size_px, recipe.size_px, 3), dtype=np.uint8)
            for (recipe, _), (boxes, _, _) in zip(self.groups, drawn, strict=True)
        ]
        for place, index in enumerate(indices):
            decoded: dict[Path, NDArray[np.uint8]] = {}
            for (recipe, _), stack, (boxes, colors, styles) in zip(
                self.groups, stacks, drawn, strict=True
            ):
                for row in range(place, len(stack), len(indices)):
                    try:
                        view = self._crop_image(
                            int(index), boxes[row], int(styles[row]), recipe, decoded
                        )
                    except DecodeError as error:
                        if self.bad_images is None:
                            raise
                        self.bad_images.add(int(index), error)
                        self.bad_images.check()
                        return self.file_views(step)  # with a substitute
                    if self.colors_in_workers:
                        view = augment_cpu.color(view, colors, row, recipe)
                    stack[row] = view
        packed: list[Array] = [indices]
        if not self.colors_in_workers:
            for (recipe, _), (_, colors, _) in zip(self.groups, drawn, strict=True):
                packed += color_changes(colors, recipe)
        return [*map(torch.from_numpy, stacks), pack(packed)]

    def _crop_image(
        self,
        index: int,
        box: Integers,
        style: int,
        recipe: ViewRecipe,
        decoded: dict[Path, NDArray[np.uint8]],
    ) -> NDArray[np.uint8]:
        images, styled = self.images, style >= 0
        file = self.styles[style] / images.name(index) if styled else images.path(index)
        if file not in decoded:
            pixels = read_pixels(file) if styled else images.read(index)
            decoded[file] = pixels.numpy()
        found = decoded[file]
        size = np.array([images.heights[index], images.widths[index]] * 2)
        if styled and found.shape[:2] != tuple(size[:2]):  # a copy may have another size
            scale = np.array(found.shape[:2] * 2) / size
            box = np.maximum((box * scale).astype(np.int64), (0, 0, 1, 1))
        view: NDArray[np.uint8] = crop(found, box.tolist(), recipe.size_px)
        return view

    def finish_views(
        self, stacks: list[Tensor], numbers: list[Tensor], constants: Constants
    ) -> list[Tensor]:
        """Return the views of a step, V of (n, 3, S, S), from the stack of each group.

        numbers: the color changes of all groups; none if the workers have colored.
        """
        views: list[Tensor] = []
        groups = zip(self.groups, stacks, self._split(numbers), strict=True)
        for (recipe, rows), stacked, changes in groups:
            num_views = rows.stop - rows.start
            if self.colors_in_workers and self.device.type == "cpu":
                # one by one: memory of this size is used again, that of all views is not
                parts = stacked.chunk(num_views)
                views += [augment_cpu.normalize(part, recipe) for part in parts]
                continue
            # from (V * n, S, S, 3), uint8
            pixels = stacked.to(self.device, non_blocking=True).permute(0, 3, 1, 2)
            images = pixels.float().div_(255)
            if self.colors_in_workers:
                images = normalize(images, constants)
            else:
                images = finish(images, changes, recipe, constants)
            views += images.chunk(num_views)
        return views

    def _split(self, numbers: list[Tensor]) -> list[list[Tensor]]:
        """Return the numbers of each group; all groups have as many arrays."""
        each = len(numbers) // len(self.groups)
        return [numbers[place * each : (place + 1) * each] for place in range(len(self.groups))]


def decode_all(images: TrainingImages, bad_images: BadImages | None = None) -> Tensor:
    """Return all pixels (N, 3, H, W), uint8, with zeros below and right of smaller images.

    Images that do not decode are added to `bad_images`, and their pixels are zeros; a DecodeError
    names all of them if there are more than tolerated. Without `bad_images`, the first raises it.
    """
    pixels = torch.zeros(
        len(images), 3, int(images.heights.max()), int(images.widths.max()), dtype=torch.uint8
    )
    for place in range(len(images)):
        try:
            image = images.read(place)
        except DecodeError as error:
            if bad_images is None:
                raise
            bad_images.add(place, error)
            continue
        pixels[place, :, : image.shape[0], : image.shape[1]] = image.permute(2, 0, 1)
    if bad_images is not None:
        bad_images.check()
    return pixels
