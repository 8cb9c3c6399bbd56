from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from pretrain.data import BatchPlan, DataError, find_images
from pretrain.feed import Feed
from pretrain.views import ViewRecipe


def feed(folder: Path, *, memory_gb: float = 1.0, workers: int = 0) -> Feed:
    images = find_images(folder)
    return Feed(
        images=images,
        plan=BatchPlan(num_images=len(images), batch_size=4, seed=0),
        recipe=ViewRecipe(size_px=16),
        num_views=3,
        device=torch.device("cpu"),
        workers=workers,
        memory_gb=memory_gb,
    )


def test_a_step_is_the_same_after_a_resume(image_folder: Path) -> None:
    whole = list(feed(image_folder).batches(0, 8))
    rest = list(feed(image_folder).batches(6, 8))
    assert len(whole[0]) == 3
    assert whole[0][0].shape == (4, 3, 16, 16)
    for expected, views in zip(whole[6:], rest, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(expected, views, strict=True))


def test_views_from_files_are_those_from_memory_up_to_rounding(image_folder: Path) -> None:
    memory = feed(image_folder).batches(0, 3)
    files = feed(image_folder, memory_gb=0).batches(0, 3)
    std = torch.tensor(ViewRecipe().std)[:, None, None]
    for ours, theirs in zip(memory, files, strict=True):
        apart = (torch.cat(ours) - torch.cat(theirs)).abs() * std * 255
        assert apart.mean() < 1  # files are rounded to 8 bits between crop and colors


def test_workers_change_nothing(image_folder: Path) -> None:
    alone = feed(image_folder, memory_gb=0).batches(2, 6)
    helped = feed(image_folder, memory_gb=0, workers=2).batches(2, 6)
    for ours, theirs in zip(alone, helped, strict=True):
        assert torch.equal(torch.cat(ours), torch.cat(theirs))


def test_views_of_an_image_differ(image_folder: Path) -> None:
    first, second, _ = next(feed(image_folder).batches(0, 1))
    assert not np.allclose(first, second)


def test_memory_is_used_only_where_all_images_fit(image_folder: Path) -> None:
    small = feed(image_folder)
    assert small.in_memory
    assert not replace(small, memory_gb=20 * 20 * 24 * 3 / 1e9 - 1e-9).in_memory


def test_an_image_that_breaks_after_the_start_is_named(image_folder: Path) -> None:
    broken = feed(image_folder, memory_gb=0)
    for file in broken.images.files:
        file.write_bytes(file.read_bytes()[:60])
    with pytest.raises(DataError, match=r"\.png does not decode"):
        next(broken.batches(0, 1))
