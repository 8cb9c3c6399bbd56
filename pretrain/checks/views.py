"""Views of a batch that the device makes against those that the CPU makes."""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace
from itertools import chain

import torch
from torch import Tensor

from pretrain.checks.place import Place, full_float32
from pretrain.checks.report import Fact, Outcome, judged
from pretrain.checks.started import small_images, start_job
from pretrain.checks.waits import forbidden_waits
from pretrain.data.feed import Batch, Feed

LEVELS = 255
ROUNDINGS = 300
"""Roundings of values of at most one from pixels to views: crops, four changes of color and a blur
have about fifty, some of them of values up to six; differences of nearby values weigh the rest."""
BOUND_LEVELS = LEVELS * ROUNDINGS * torch.finfo(torch.float32).eps
NUM_STEPS = 2

SETTINGS: Mapping[str, tuple[str, ...]] = {
    "two views": ("moco/smoke", "--size-px", "64"),
    "unlike views": ("byol/smoke", "--second-solarize-probability", "0.5"),
    "small views": ("lorac/smoke",),
    "turned and textured views": (
        *("looc/smoke", "--rotation-probability", "0.5"),
        *("--texture-probability", "0.5"),
    ),
}
"""Kind of views -> recipe and options."""


def views_from_memory(place: Place) -> Outcome:
    """Compare views that are made from decoded pixels in memory."""
    return compare_views(place, "--memory-gb", "2")


def views_from_files(place: Place) -> Outcome:
    """Compare views that workers crop and the device colors."""
    workers = ("--workers", "2") if place.on_gpu else ()
    return compare_views(place, "--memory-gb", "0", "--colors-in", "device", *workers)


def compare_views(place: Place, *options: str) -> Outcome:
    """Return the largest differences in gray levels; on a GPU the second batch may not wait."""
    failures: list[str] = []
    facts: dict[str, Fact] = {"bound_in_levels": BOUND_LEVELS}
    images = small_images(place)
    for name, (recipe, *more) in SETTINGS.items():
        job = start_job(recipe, place, images, *more, *options)
        on_cpu = replace(job.feed, device=torch.device("cpu"), colors_in_workers=False)
        with full_float32():
            found, expected = two_batches(job.feed, place), two_batches(on_cpu, place)
        levels = largest_difference(job.feed, found, expected)
        facts[name] = levels
        if not levels <= BOUND_LEVELS:
            failures.append(f"{name} are {levels:.2g} gray levels apart, not {BOUND_LEVELS:.2g}")
    return judged(failures, facts)


def two_batches(feed: Feed, place: Place) -> list[Batch]:
    """Return the first batches; a GPU is not waited for when it makes the second."""
    with closing(feed.batches(0, NUM_STEPS)) as batches:
        first = next(batches)
        with forbidden_waits(place):
            return [first, next(batches)]


def largest_difference(feed: Feed, found: list[Batch], expected: list[Batch]) -> float:
    """Return how many gray levels two lists of batches are apart at most; nan where undefined."""
    pairs = chain.from_iterable(
        zip(one.views, other.views, strict=True) for one, other in zip(found, expected, strict=True)
    )
    std = torch.tensor(feed.recipe.std, dtype=torch.float64)[:, None, None]
    return float(torch.stack([_levels_apart(one, other, std) for one, other in pairs]).max())


def _levels_apart(one: Tensor, other: Tensor, std: Tensor) -> Tensor:
    return ((one.cpu().double() - other.cpu().double()) * std).abs().max() * LEVELS
