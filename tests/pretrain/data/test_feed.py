"""Batches from images in memory and files, colored by workers or device."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor

from pretrain.data.bad_images import FILE_NAME, BadImages
from pretrain.data.feed import Feed
from pretrain.data.images import BatchPlan, DataError
from pretrain.data.listing import find_images, find_styles
from pretrain.data.views import ViewRecipe
from pretrain.parts.view import View
from tests.rounding import assert_equal_up_to_rounding, rounding_error

WHOLE = ViewRecipe(
    size_px=16,
    crop_area=(1.0, 1.0),
    crop_aspect=(1.2, 1.2),
    jitter_probability=0,
    gray_probability=0,
    blur_probability=0,
    flip_probability=0,
)
"""A recipe with views that are the unchanged, complete images."""
ROUNDING = rounding_error(torch.float32, magnitude=1 / min(WHOLE.std))
"""Rounding error of views: levels up to 1 over the deviation."""
CROPPED = replace(WHOLE, crop_area=(0.1, 0.5), crop_aspect=(3 / 4, 4 / 3))
MULTI_CROP = (View(), View(), View(small=True), View(small=True), View(small=True))
Options = dict[str, Any]
MEMORY: Options = {}
FILES: Options = {"memory_gb": 0.0}
DEVICE: Options = {"memory_gb": 0.0, "colors_on_device": True}
every_source = pytest.mark.parametrize("source", [FILES, DEVICE])


def feed(folder: Path, **changes: Any) -> Feed:
    """Three 16 px views from memory, in batches of four.

    changes: replace some of these settings.
    """
    images = find_images(folder)
    plain = Feed(
        images=images,
        plan=BatchPlan(num_images=len(images), batch_size=4, seed=0),
        recipe=ViewRecipe(size_px=16),
        views=(View(),) * 3,
        device=torch.device("cpu"),
        workers=0,
        memory_gb=1.0,
        bad_images=BadImages(
            images=images, path=folder.parent / "out" / FILE_NAME, seed=0, tolerated=0
        ),
    )
    return replace(plain, **changes)


def test_workers_change_nothing(image_folder: Path) -> None:
    single = feed(image_folder, memory_gb=0).batches(2, 6)
    helped = feed(image_folder, memory_gb=0, workers=2).batches(2, 6)
    for ours, theirs in zip(single, helped, strict=True):
        assert torch.equal(torch.cat(ours.views), torch.cat(theirs.views))


def test_an_image_that_breaks_after_the_start_is_named(image_folder: Path) -> None:
    broken = feed(image_folder, memory_gb=0)
    for file in image_folder.rglob("*.png"):
        file.write_bytes(file.read_bytes()[:60])
    with pytest.raises(DataError, match=r"\.png does not decode"):
        next(broken.batches(0, 1))


def multi_crop(folder: Path, source: Options) -> Feed:
    """Two 16 px and three 8 px views, with all augmentations."""
    recipe = ViewRecipe(
        size_px=16, small_size_px=8, rotation_probability=0.5, texture_probability=0.5
    )
    return feed(folder, **source, recipe=recipe, views=MULTI_CROP, uses_labels=True)


def levels(views: list[Tensor]) -> Tensor:
    """Views of one size as gray levels (V, n, 3, S, S)."""
    mean, std = (torch.tensor(value)[:, None, None] for value in (WHOLE.mean, WHOLE.std))
    return (torch.stack(views) * std + mean) * 255


@every_source
def test_a_step_of_views_of_two_sizes_is_the_same_after_a_resume(
    image_folder: Path, source: Options
) -> None:
    whole = list(multi_crop(image_folder, source).batches(0, 8))
    resumed = list(multi_crop(image_folder, source).batches(5, 8))
    for expected, result in zip(whole[5:], resumed, strict=True):
        assert all(map(torch.equal, expected.views, result.views))
        assert torch.equal(*expected.extras, *result.extras)


def test_views_from_memory_are_those_from_files(image_folder: Path) -> None:
    memory = multi_crop(image_folder, MEMORY).batches(0, 3)
    files = multi_crop(image_folder, FILES).batches(0, 3)
    for ours, theirs in zip(memory, files, strict=True):
        assert all(map(torch.equal, ours.views, theirs.views))


def test_views_are_in_channels_last(image_folder: Path) -> None:
    (batch,) = feed(image_folder).batches(0, 1)
    assert batch.views[0].is_contiguous(memory_format=torch.channels_last)


def test_views_colored_on_the_device_are_those_of_workers_up_to_rounding(
    image_folder: Path,
) -> None:
    workers = multi_crop(image_folder, FILES).batches(0, 3)
    device = multi_crop(image_folder, DEVICE).batches(0, 3)
    for ours, theirs in zip(workers, device, strict=True):
        for group in (slice(0, 2), slice(2, 5)):
            differences = (levels(ours.views[group]) - levels(theirs.views[group])).abs()
            # workers, as PIL, drop the fraction after each of three blends, half a level on
            # average, and turn the hue in eight bits, about one level
            assert differences.mean() < 2.5


@every_source
def test_labels_and_indices_are_those_of_the_images(image_folder: Path, source: Options) -> None:
    counting = feed(image_folder, **source, recipe=WHOLE, uses_labels=True, uses_indices=True)
    observed: list[int] = []
    for batch in counting.batches(0, 5):
        labels, indices = batch.extras
        red, _, blue = levels(batch.views[:1])[0].mean(dim=(2, 3)).unbind(dim=1)
        assert torch.equal(labels, (red > blue).long())  # cold is 0, warm is 1
        assert torch.equal(labels, torch.from_numpy(counting.images.labels)[indices])
        observed += indices.tolist()
    assert sorted(observed) == list(range(20))


@every_source
def test_views_have_separate_blur_and_solarization(image_folder: Path, source: Options) -> None:
    changes: list[dict[str, Any]] = [
        {"blur_probability": 1.0},
        {"solarize_probability": 1.0},
        {"size_px": 8},
    ]
    together = replace(
        WHOLE,
        small_size_px=8,
        small_crop_area=(1.0, 1.0),
        blur_probability=1.0,
        second_blur_probability=0.0,
        small_blur_probability=0.0,
        second_solarize_probability=1.0,
    )
    views = (View(), View(), View(small=True))
    result = next(feed(image_folder, **source, recipe=together, views=views).batches(0, 1)).views
    for location, changed in enumerate(changes):
        single = feed(image_folder, **source, recipe=replace(WHOLE, **changed))
        torch.testing.assert_close(result[location], next(single.batches(0, 1)).views[location])


@every_source
def test_a_view_that_copies_the_rotation_is_turned_as_the_query_is(
    image_folder: Path, source: Options
) -> None:
    turning = feed(
        image_folder,
        **source,
        recipe=replace(WHOLE, rotation_probability=0.75),
        views=(View(), View(), View(copies=("rotation",)), View(without=("rotation",))),
    )
    observed = set()
    for views, *_ in turning.batches(0, 5):
        for query, key, copy, upright in zip(*views, strict=True):
            assert_equal_up_to_rounding(copy, query)
            rotations = [torch.rot90(upright, k, (1, 2)) for k in range(4)]
            result = [
                next(
                    k
                    for k, rotation in enumerate(rotations)
                    if torch.allclose(view, rotation, atol=ROUNDING)
                )
                for view in (query, key)
            ]
            observed.add(tuple(result))
    assert len(observed) > 8  # of 16 pairs of turns in 20 images


@pytest.mark.parametrize("colors_on_device", [False, True])
def test_views_show_the_styled_copies_and_copies_share_the_style(
    image_folder: Path, style_bank: Path, colors_on_device: bool
) -> None:
    styled = feed(
        image_folder,
        recipe=replace(WHOLE, texture_probability=0.6),
        views=(View(), View(), View(copies=("texture",)), View(without=("texture",))),
        styles=find_styles(style_bank),
        colors_on_device=colors_on_device,
    )
    batches = [levels(views).amax(dim=(2, 3, 4)) for views, *_ in styled.batches(0, 20)]
    bright = torch.cat(batches, dim=1)
    query, key, copy, photograph = bright
    assert_equal_up_to_rounding(copy, query, magnitude=255)
    query, key = query.round(), key.round()
    assert (query != key).any()
    assert photograph.min() > 30
    # 160 draws, each styled with probability 0.6: four deviations are 0.16
    sampled = torch.cat([query, key])
    for level in (10, 20):
        assert (sampled == level).double().mean().item() == pytest.approx(0.3, abs=0.15)
    assert (sampled > 30).double().mean().item() == pytest.approx(0.4, abs=0.16)


def slopes(folder: Path, sizes: list[tuple[int, int]], scale: int = 1) -> Path:
    """Images (H, W), redder to the right and greener to the bottom."""
    folder.mkdir(parents=True)
    for number, (height, width) in enumerate(sizes):
        down, right = np.mgrid[: height * scale, : width * scale].astype(np.float64)
        red, green = right / (width * scale), down / (height * scale)
        blue = np.full_like(red, number / len(sizes))
        pixels = (np.stack([red, green, blue], axis=2) * 255).astype(np.uint8)
        Image.fromarray(pixels).save(folder / f"{number}.png")
    return folder


UNEQUAL = [(20, 60), (50, 24), (32, 32), (16, 40), (64, 20), (30, 28), (18, 18), (40, 52)]


def test_memory_is_that_of_all_images_without_padding(tmp_path: Path) -> None:
    mixed = feed(slopes(tmp_path / "images", UNEQUAL))
    num_bytes = 3 * sum(height * width for height, width in UNEQUAL)
    assert replace(mixed, memory_gb=num_bytes / 1e9).in_memory
    assert not replace(mixed, memory_gb=(num_bytes - 1) / 1e9).in_memory


def test_a_styled_copy_of_another_size_is_cut_at_the_same_place(tmp_path: Path) -> None:
    plain = feed(slopes(tmp_path / "images", UNEQUAL), memory_gb=0, recipe=CROPPED)
    slopes(tmp_path / "bank" / "twice", UNEQUAL, scale=2)
    larger = replace(
        plain,
        recipe=replace(CROPPED, texture_probability=1.0),
        styles=find_styles(tmp_path / "bank"),
    )
    for ours, theirs in zip(plain.batches(0, 2), larger.batches(0, 2), strict=True):
        # the slopes begin half a small pixel later
        assert (levels(ours.views) - levels(theirs.views)).abs().mean() < 4


@every_source
def test_views_are_finished_on_the_device(image_folder: Path, source: Options) -> None:
    device = torch.device("meta")  # it raises where a value is read or met on another device
    created = replace(multi_crop(image_folder, source), device=device)
    (batch,) = created.batches(0, 1)
    assert [tuple(view.shape) for view in batch.views] == [(4, 3, 16, 16)] * 2 + [(4, 3, 8, 8)] * 3
    assert {view.device for view in [*batch.views, *batch.extras]} == {device}


@pytest.mark.parametrize("memory_gb", [1.0, 0.0])
@pytest.mark.parametrize("size", [(40, 8), (8, 8)])
def test_an_image_that_was_replaced_by_one_of_another_size_is_named(
    image_folder: Path, memory_gb: float, size: tuple[int, int]
) -> None:
    source = feed(image_folder, memory_gb=memory_gb)
    for file in image_folder.rglob("*.png"):
        Image.new("RGB", size).save(file)
    with pytest.raises(DataError, match=r"\d.png is 8 x \d+ px, but was listed as"):
        list(source.batches(0, 5))
