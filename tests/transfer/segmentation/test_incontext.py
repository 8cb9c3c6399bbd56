"""Nearest patches: labels, sampling and votes against plain loops.

A solvable set is solved.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import Tensor, nn

from tests.transfer.segmentation.drawn_split import drawn_split
from transfer.datasets.segmented import IGNORED
from transfer.encoders.encoder import InputFormat
from transfer.frozen.transforms import Normalization
from transfer.segmentation import incontext
from transfer.segmentation.incontext import (
    augmented,
    nearest_fractions,
    patch_labels,
    predict,
    sampled_patches,
    upsampled_classes,
)
from transfer.segmentation.masks import Predicted
from transfer.segmentation.recipe import InContextRecipe

RECIPE = replace(InContextRecipe(), image_px=48, memory_patches=500, num_neighbors=3)
FORM = InputFormat(mean=(0.5,) * 3, std=(0.5,) * 3, size_px=48)


class Colors(nn.Module):
    """Maps at stride 4 whose features are the mean color."""

    def forward(self, images: Tensor) -> Tensor:
        return nn.functional.avg_pool2d(images, 4)


def predicted(folder: Path, seed: int = 0) -> tuple[Predicted, Predicted, dict[str, object]]:
    split = drawn_split(folder)
    square, full = folder / "square", folder / "full"
    normalize = Normalization(FORM, torch.device("cpu"))
    details = predict(Colors(), normalize, RECIPE, split, split, (square, full), seed)
    return Predicted(square, split, {}, 48), Predicted(full, split), details


def test_labels_of_patches_are_shares_by_a_plain_loop() -> None:
    masks = torch.randint(0, 3, (2, 8, 12), dtype=torch.uint8)
    masks[0, 0, :4] = IGNORED
    labels = patch_labels(masks, 2, 3, 3)
    assert labels.shape == (2, 6, 3)
    for n, y, x in np.ndindex(2, 2, 3):
        patch = masks[n, 4 * y : 4 * y + 4, 4 * x : 4 * x + 4].flatten().tolist()
        shares = [sum(v == c or (c == 0 and v == IGNORED) for v in patch) / 16 for c in range(3)]
        assert labels[n, 3 * y + x].tolist() == pytest.approx(shares)


def test_rare_classes_are_sampled_more_often() -> None:
    labels = torch.zeros(40, 2)
    labels[:38, 0] = labels[38:, 1] = 1
    generator = torch.Generator().manual_seed(0)
    sampled = [sampled_patches(labels, 4, generator) for _ in range(50)]
    assert all(part.tolist() == sorted(set(part.tolist())) for part in sampled)
    assert sum(int((part >= 38).sum()) for part in sampled) > 60  # a uniform draw takes 10


def test_votes_are_a_softmax_by_a_plain_loop() -> None:
    cosines, neighbors = torch.tensor([[0.9, 0.88, 0.5]]), torch.tensor([[2, 0, 1]])
    labels = torch.tensor([[1.0, 0.0], [0.0, 1.0], [0.25, 0.75]])
    weights = np.exp(cosines[0].double().numpy() / 0.02)
    expected = weights @ labels[neighbors[0]].double().numpy() / weights.sum()
    assert nearest_fractions(cosines, neighbors, labels, 0.02)[0].tolist() == pytest.approx(
        expected
    )


def test_a_grid_is_upsampled_without_aligned_corners() -> None:
    grid = torch.eye(2)[None]  # (1, 2, 2): class 0 left, class 1 right
    assert upsampled_classes(grid, (3, 8)).tolist() == [[0, 0, 0, 0, 1, 1, 1, 1]] * 3


def test_a_crop_of_image_and_mask_is_the_same() -> None:
    mask = np.random.default_rng(0).integers(0, 2, (6, 9), dtype=np.uint8).repeat(20, 0)
    mask = mask.repeat(20, 1)
    image = Image.fromarray((255 * mask)[..., None].repeat(3, 2))
    torch.manual_seed(3)
    crop, classes = augmented(image, Image.fromarray(mask), replace(RECIPE, jitter_probability=0.0))
    same = (np.array(crop)[..., 0] > 127) == (np.array(classes) == 1)
    assert crop.size == classes.size == (48, 48)
    assert same.mean() > 0.95


def test_color_features_solve_colored_squares(tmp_path: Path) -> None:
    square, full, details = predicted(tmp_path)
    assert square.mask(0).shape == (48, 48)
    assert full.mask(0).shape == (48, 72)
    assert square.overlap.mean > 80
    assert full.overlap.mean > 80
    assert details == {"places": [12, 12], "memory_rows": 4 * 2 * 62}


def test_blocks_of_the_memory_change_no_mask(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = tmp_path / "one", tmp_path / "many"
    (whole, _, _), _ = predicted(folders[0]), monkeypatch.setattr(incontext, "BLOCK", 10)
    monkeypatch.setattr(incontext, "IMAGES_PER_BATCH", 1)
    parts, _, _ = predicted(folders[1])
    for i in range(4):
        assert np.array_equal(whole.mask(i), parts.mask(i))


def test_the_truth_on_a_square_is_resized_by_nearest_neighbor(tmp_path: Path) -> None:
    split = drawn_split(tmp_path)
    assert Predicted(tmp_path, split, {}, 24).truth(0)[4:20].max() == 1
    assert Predicted(tmp_path, split, {}, 24).truth(0).shape == (24, 24)
    assert np.array_equal(Predicted(tmp_path, split).truth(1), split.mask(1))
