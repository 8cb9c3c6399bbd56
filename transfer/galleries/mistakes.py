"""Galleries of classifiers' worst mistakes.

With one label per image: images confidently assigned to a wrong class. With several labels: images
with the worst ranks in the ranking for a class.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from transfer.galleries.tile import NUM_IMAGES, Tile, jpeg, thumbnail

if TYPE_CHECKING:
    from torch import Tensor

    from transfer.datasets.images import Images

SIDE_PX = 160
MOST_WRONG = "most wrong"
CORRUPTED = "worst under its corruption"
FALSE, MISSED = "false positive", "missed positive"


class Mistake(NamedTuple):
    """A wrong prediction."""

    row: int
    """Row of the scores: the index of the image."""
    label: int
    predicted: int

    def caption(self, names: Sequence[str]) -> str:
        """Return a text with label and prediction."""
        return f"{names[self.label]} taken for {names[self.predicted]}"


def mistakes(
    images: Images, scores: Tensor, labels: Tensor, classes: Sequence[str] = ()
) -> list[Tile]:
    """Return tiles of the misclassified images with the largest margins, worst first.

    scores (n, L) and labels (n,) in the order of the images; classes: L names, by default those
    of `images`.
    """
    names = classes or images.class_names
    worst = _worst(scores, labels)
    return [_tile(images, m.row, m.caption(names), MOST_WRONG) for m in worst]


def corrupted_mistakes(
    images: Images,
    scores: Tensor,
    labels: Tensor,
    corruptions: Sequence[tuple[str, int]],
    classes: Sequence[str],
) -> list[Tile]:
    """Return tiles of each corruption's worst mistake, worst first.

    Each source image is shown only once, since one image under all corruptions could fill the
    gallery. corruptions (n,): type and severity of each image; classes: L names.
    """

    def unique_keys(mistake: Mistake) -> list[Hashable]:
        # corruption type, and source image: class folder and file name
        return [corruptions[mistake.row][0], tuple(images.name(mistake.row).split("/")[-2:])]

    tiles = []
    for mistake in _worst(scores, labels, unique_keys):
        kind, severity = corruptions[mistake.row]
        caption = f"{mistake.caption(classes)}; {kind.replace('_', ' ')}, severity {severity}"
        tiles.append(_tile(images, mistake.row, caption, CORRUPTED))
    return tiles


def _worst(
    scores: Tensor,
    labels: Tensor,
    unique_keys: Callable[[Mistake], Sequence[Hashable]] = lambda mistake: [mistake.row],
) -> list[Mistake]:
    """Return the mistakes with the largest margins, worst first.

    The margin is the predicted class's score minus the label's score. scores (n, L), labels (n,);
    unique_keys: keys of a mistake that no other mistake in the result shares.
    """
    import torch

    scores, labels = scores.float().cpu(), labels.cpu()
    best, predicted = scores.max(dim=1)
    margin = best - scores.gather(1, labels[:, None])[:, 0]
    margin[predicted == labels] = -1.0
    # a stable sort, so that equal margins always select the same images
    order = torch.sort(margin, descending=True, stable=True).indices
    worst: list[Mistake] = []
    used_keys: set[Hashable] = set()
    for index in order[margin[order] > 0].tolist():
        mistake = Mistake(index, int(labels[index]), int(predicted[index]))
        if len(worst) < NUM_IMAGES and used_keys.isdisjoint(keys := unique_keys(mistake)):
            used_keys.update(keys)
            worst.append(mistake)
    return worst


def _tile(images: Images, index: int, caption: str, group: str) -> Tile:
    """Return a tile with the thumbnail of an image."""
    small = thumbnail(images[index][0], SIDE_PX)
    return Tile(jpeg=jpeg(small), group=group, caption=caption, name=images.name(index))


def worst_ranked(
    images: Images, scores: Tensor, present: Tensor, absent: Tensor, classes: Sequence[str]
) -> list[Tile]:
    """Return tiles of high-ranked false positives and low-ranked true ones.

    Each class contributes at most one image of each kind, and no image is shown twice. Mistakes
    are ordered by rank: average precision depends on ranks only, and the scores of two classes
    are not on one scale.

    scores (n, L); present, absent (n, L): an image is ranked for a class if one of them is true.
    """
    score_array, is_present = scores.float().cpu().numpy(), present.cpu().numpy()
    is_ranked = (present | absent).cpu().numpy()
    candidates: dict[str, list[tuple[float, int, str]]] = {FALSE: [], MISSED: []}
    for category, name in enumerate(classes):
        indices = np.flatnonzero(is_ranked[:, category])
        # a stable sort, so that equal scores always select the same images
        order = indices[np.argsort(-score_array[indices, category], kind="stable")]
        positive = is_present[order, category]
        if positive.all() or not positive.any():
            continue
        first, last = int(positive.argmin()), len(positive) - 1 - int(positive[::-1].argmax())
        if last < first:  # all present images rank before all absent ones
            continue
        for group, position, sign in ((FALSE, first, 1), (MISSED, last, -1)):
            index, rank = int(order[position]), f"rank {position + 1:,} of {len(order):,}"
            other_classes = [
                c
                for c, is_shown in zip(classes, is_present[index], strict=True)
                if is_shown and c != name
            ]
            caption = f"{rank} for {name}" if group == FALSE else f"{name}, {rank}"
            caption += f"; shows {', '.join(other_classes)}" if other_classes else ""
            candidates[group].append((sign * (position + 1) / len(order), index, caption))
    tiles: list[Tile] = []
    used_indices: set[int] = set()
    for group, rows in candidates.items():
        max_tiles = len(tiles) + NUM_IMAGES // 2
        for _, index, caption in sorted(rows, key=itemgetter(0)):
            if index not in used_indices and len(tiles) < max_tiles:
                used_indices.add(index)
                tiles.append(_tile(images, index, caption, group))
    return tiles
