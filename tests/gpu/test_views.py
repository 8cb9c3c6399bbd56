"""Views that the device makes against views that the CPU makes."""

from collections.abc import Mapping
from contextlib import closing
from dataclasses import replace

import pytest
import torch

from pretrain.data.feed import Batch, Feed
from tests.gpu.findings import Findings
from tests.gpu.started import Workspace, small_images, start_job
from tests.gpu.waits import forbidden_waits

LEVELS = 255
ROUNDINGS = 300
"""Allowed roundings of values of at most one, from pixels to views.

Crops, four color changes and a blur have about fifty, some of them of values up to six; differences
of nearby values enlarge them.
"""
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


@pytest.mark.parametrize("colors_in", ["workers", "device"])
@pytest.mark.parametrize("kind", SETTINGS)
def test_views_are_those_of_the_cpu(
    kind: str, colors_in: str, workspace: Workspace, findings: Findings
) -> None:
    """In gray levels; on a GPU the second batch must not wait."""
    recipe, *settings = SETTINGS[kind]
    options = ["--memory-gb", "0", "--colors-in", colors_in]
    options += ["--workers", "2"] if workspace.on_gpu else []
    job = start_job(recipe, workspace, small_images(workspace), *settings, *options)
    on_cpu = replace(job.feed, device=torch.device("cpu"))
    result, expected = two_batches(job.feed, workspace), two_batches(on_cpu, workspace)
    findings.add("gray levels", largest_difference(job.feed, result, expected), BOUND_LEVELS)


def two_batches(feed: Feed, workspace: Workspace) -> list[Batch]:
    """Return the first two batches.

    Making the second one must not wait for a GPU.
    """
    with closing(feed.batches(0, NUM_STEPS)) as batches:
        first = next(batches)
        with forbidden_waits(workspace):
            return [first, next(batches)]


def largest_difference(feed: Feed, actual: list[Batch], expected: list[Batch]) -> float:
    """Return the largest difference of two lists of batches, in gray levels.

    NaN where undefined.
    """
    std = torch.tensor(feed.recipe.std, dtype=torch.float64)[:, None, None]
    differences = [
        ((item.cpu().double() - second.cpu().double()) * std).abs().max()
        for ours, theirs in zip(actual, expected, strict=True)
        for item, second in zip(ours.views, theirs.views, strict=True)
    ]
    return LEVELS * float(torch.stack(differences).max())
