"""Segmentation by nearest patches of training images, without training.

Balazevic et al., "Towards In-context Scene Understanding", NeurIPS 2023, arXiv:2306.01667
(Hummingbird). Its code is not public; steps that the paper leaves open follow open-hummingbird-eval
2.0. Our numbers differ from its published ones for three reasons: the search is exact, the standard
deviation of the blue channel is correct, and predicted classes are not matched to the true ones
afterwards.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import Tensor, nn
from torch.nn.functional import adaptive_avg_pool2d, interpolate, normalize, one_hot
from torchvision.transforms import RandomResizedCrop
from torchvision.transforms import functional as F

from pretrain.running import stop
from pretrain.running.console import progress
from pretrain.running.loader import load_batches
from transfer.datasets.segmented import IGNORED, Mask, Segmented, write_mask
from transfer.finetuning.stream import pixels
from transfer.frozen.extraction import num_workers
from transfer.frozen.nearest import Nearest
from transfer.frozen.network import forward
from transfer.frozen.transforms import Normalization
from transfer.segmentation.masks import prediction_path
from transfer.segmentation.recipe import InContextRecipe

IMAGES_PER_BATCH = 16
BLOCK = 16_384
"""Memory rows per comparison; does not affect the neighbors."""


def augmented(
    image: Image.Image, mask: Image.Image, recipe: InContextRecipe
) -> tuple[Image.Image, Image.Image]:
    """Return a random crop of image and mask, resized to a square.

    Random numbers are from torch's global generator.
    """
    areas, side = list(recipe.areas), recipe.image_px
    y, x, height, width = RandomResizedCrop.get_params(image, areas, [3 / 4, 4 / 3])
    box = (x, y, x + width, y + height)
    image = image.resize((side, side), Image.Resampling.BILINEAR, box=box)
    mask = mask.resize((side, side), Image.Resampling.NEAREST, box=box)
    jitter, probability = recipe.jitter, recipe.jitter_probability
    for change, neutral in (
        (F.adjust_brightness, 1.0),
        (F.adjust_contrast, 1.0),
        (F.adjust_saturation, 1.0),
        (F.adjust_hue, 0.0),
    ):
        draw, amount = torch.rand(2, dtype=torch.float64).tolist()
        if draw < probability:
            image = change(image, neutral + jitter * (2 * amount - 1))
    return image, mask


def patch_labels(masks: Tensor, height: int, width: int, num_classes: int) -> Tensor:
    """Return the fraction of each class in each patch (n, h w, L).

    masks: (n, S, S) uint8. Ignored pixels count as background, as in open-hummingbird-eval.
    """
    classes = masks.long().masked_fill(masks == IGNORED, 0)
    class_masks = one_hot(classes, num_classes).permute(0, 3, 1, 2).float()
    fractions = adaptive_avg_pool2d(class_masks, (height, width))
    return fractions.flatten(2).transpose(1, 2)


def sampled_patches(labels: Tensor, count: int, generator: torch.Generator) -> Tensor:
    """Return the sorted indices of `count` patches of an image.

    labels (p, L): class fractions of all patches. A patch's score is the number of patches that
    contain its classes, summed over its classes, times a uniform random number. The smallest
    scores are selected, which favors rare classes.
    """
    has_class = (labels > 0).float()
    frequency = has_class @ has_class.sum(dim=0)
    scores = frequency * torch.rand(len(labels), generator=generator, dtype=torch.float32)
    return scores.argsort(stable=True)[:count].sort().values


def nearest_fractions(
    similarities: Tensor, neighbors: Tensor, labels: Tensor, temperature: float
) -> Tensor:
    """Return each class's weighted fraction (q, L) of the neighbors (q, k).

    neighbors: row indices of labels (M, L). Weights are the softmax of cosine / temperature.
    """
    weights = (similarities / temperature).softmax(dim=1)
    return torch.einsum("qk,qkl->ql", weights, labels[neighbors])


def upsampled_classes(grid: Tensor, size: Sequence[int]) -> Mask:
    """Return the class (H, W) of each pixel, uint8.

    grid (h, w, L): class fractions.
    """
    maps = grid.permute(2, 0, 1)[None]
    large = interpolate(maps, size=tuple(size), mode="bilinear", align_corners=False)
    return np.asarray(large[0].argmax(dim=0).to(torch.uint8))


def predict(
    network: nn.Module,
    normalize_pixels: Normalization,
    recipe: InContextRecipe,
    train: Segmented,
    test: Segmented,
    folders: tuple[Path, Path],
    seed: int,
) -> dict[str, object]:
    """Predict and write two masks of each test image.

    One has the network's square size, the other one the original size.
    network: images (n, 3, S, S) -> maps (n, C, h, w), S = recipe.image_px.
    folders: one for each kind of mask.
    Returns the map size and the number of memory rows.
    """

    def resized_images(indices: Sequence[int]) -> Tensor:
        side = (recipe.image_px, recipe.image_px)
        images = (test.source.decode(i) for i in indices)
        return torch.stack([pixels(i.resize(side, Image.Resampling.BILINEAR)) for i in images])

    def maps(images: Tensor) -> Tensor:
        stop.exit_if_requested()
        return normalize(forward(network, normalize_pixels(images)), dim=1)

    queries, size = [], (0, 0)
    with progress("extract", "test images", len(test)) as counter:
        batches = batches_of(range(len(test)))
        for images in load_batches(resized_images, batches, num_workers=num_workers(len(test))):
            features = maps(images)
            size = (features.shape[2], features.shape[3])
            queries.append(features.flatten(2).transpose(1, 2).flatten(0, 1).cpu())
            counter.add(len(images))
    nearest = Nearest(torch.cat(queries), recipe.num_neighbors)
    labels = fill_memory(nearest, maps, size, recipe, train, seed)
    num_patches = size[0] * size[1]
    with progress("predict", "masks", len(test)) as counter:
        for i in range(len(test)):
            stop.exit_if_requested()
            patches = slice(i * num_patches, (i + 1) * num_patches)
            similarities, neighbors = nearest.similarities[patches], nearest.indices[patches]
            fractions = nearest_fractions(similarities, neighbors, labels, recipe.temperature)
            square = (recipe.image_px, recipe.image_px)
            for folder, shape in zip(folders, (square, test.mask(i).shape), strict=True):
                classes = upsampled_classes(fractions.unflatten(0, size), shape)
                write_mask(prediction_path(folder, test, i), classes, "--runs")
            counter.add(1)
    return {"places": list(size), "memory_rows": nearest.num_rows}


def fill_memory(
    nearest: Nearest,
    maps: Callable[[Tensor], Tensor],
    size: tuple[int, int],
    recipe: InContextRecipe,
    train: Segmented,
    seed: int,
) -> Tensor:
    """Add training patches to the search; return their labels (M, L).

    maps: function from images (n, 3, S, S) uint8 to unit features (n, C, h, w).
    """
    num_images = len(train) * recipe.epochs
    count = max(1, min(size[0] * size[1], recipe.memory_patches // num_images))

    def crops(positions: Sequence[int]) -> tuple[Tensor, Tensor]:
        pairs = []
        for position in positions:
            i = position % len(train)
            image, mask = train.source.decode(i), Image.fromarray(train.mask(i))
            with torch.random.fork_rng(devices=[]):
                seeds = np.random.SeedSequence([seed, position])
                torch.manual_seed(int(seeds.generate_state(1)[0]))
                pairs.append(augmented(image, mask, recipe))
        masks = torch.stack([torch.from_numpy(np.array(mask)) for _, mask in pairs])
        return torch.stack([pixels(image) for image, _ in pairs]), masks

    generator = torch.Generator().manual_seed(seed)
    rows: list[Tensor] = []
    labels: list[Tensor] = []
    with progress("memory", "training images", num_images) as counter:
        batches = batches_of(range(num_images))
        for images, masks in load_batches(crops, batches, num_workers=num_workers(num_images)):
            features = maps(images).flatten(2).transpose(1, 2)
            fractions = patch_labels(masks, *size, len(train.class_names))
            for patches, label in zip(features, fractions, strict=True):
                selected = sampled_patches(label, count, generator)
                rows.append(patches[selected.to(patches.device)])
                labels.append(label[selected])
            if sum(map(len, rows)) >= BLOCK or counter.done + len(images) == num_images:
                nearest.add(torch.cat(rows))
                rows.clear()
            counter.add(len(images))
    return torch.cat(labels)


def batches_of(indices: Sequence[int]) -> Iterator[Sequence[int]]:
    """Yield the indices in batches."""
    for start in range(0, len(indices), IMAGES_PER_BATCH):
        yield indices[start : start + IMAGES_PER_BATCH]
