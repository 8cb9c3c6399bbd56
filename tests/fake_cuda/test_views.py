"""Views that are finished on pretend CUDA tensors."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from pretrain.data.bad_images import FILE_NAME, BadImages
from pretrain.data.feed import Batch, Feed
from pretrain.data.images import BatchPlan
from pretrain.data.listing import find_images
from pretrain.data.views import ViewRecipe
from pretrain.parts.view import View
from pretrain.recipes.recipe import BYOL_VIEWS, MOCO_V2_VIEWS, SWAV_VIEWS
from tests.fake_cuda.pretend import CUDA, pretend_cuda
from tests.fake_cuda.watch import Watch, allowed_waits
from tests.tiny_methods import write_images

TWO = (View(), View())
RECIPES: dict[str, tuple[ViewRecipe, tuple[View, ...]]] = {
    "moco": (MOCO_V2_VIEWS, TWO),
    "byol": (BYOL_VIEWS, TWO),
    "swav": (SWAV_VIEWS, (*TWO, View(small=True))),
}
NUM_IMAGES = 8


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_images(tmp_path_factory.mktemp("images"))


def second_batch(folder: Path, name: str, *, colors_on_device: bool) -> tuple[Batch, Watch]:
    """Return a batch after the first one, which may upload constants."""
    recipe, views = RECIPES[name]
    images = find_images(folder)
    feed = Feed(
        images=images,
        plan=BatchPlan(num_images=NUM_IMAGES, batch_size=NUM_IMAGES, seed=0),
        recipe=replace(recipe, size_px=16, small_size_px=8),
        views=views,
        device=CUDA,
        workers=0,
        memory_gb=1.0,
        bad_images=BadImages(images=images, path=folder / FILE_NAME, seed=0, tolerated=0),
        colors_on_device=colors_on_device,
        uses_labels=True,
    )
    with pretend_cuda(), closing(feed.batches(0, 2)) as batches:
        with Watch():
            next(batches)
        with Watch() as watch:
            return next(batches), watch


@pytest.mark.parametrize("name", RECIPES)
@pytest.mark.parametrize("colors_on_device", [False, True])
def test_views_are_float32_and_nothing_waits_for_the_device(
    name: str, colors_on_device: bool, folder: Path
) -> None:
    batch, watch = second_batch(folder, name, colors_on_device=colors_on_device)
    kinds = {(view.dtype, view.device, view.shape[:2]) for view in batch.views}
    assert kinds == {(torch.float32, CUDA, (NUM_IMAGES, 3))}
    assert [rows.device for rows in batch.extras] == [CUDA]
    assert watch.faults == []  # memory that the first batch's copies may still read
    assert watch.waits == allowed_waits("views", name)
