"""Images about which a classifier is most wrong: it is sure of another class than the label.

Where an image has several classes: images that the ranking for a class has in a wrong place.
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
TURNED = "worst rotation"
CORRUPTED = "worst under its corruption"
FALSE, MISSED = "false positive", "missed positive"


class Mistake(NamedTuple):
    """A wrong answer of a classifier."""

    place: int
    """Row of the scores."""
    label: int
    predicted: int

    def words(self, names: Sequence[str]) -> str:
        """Return what was taken for what."""
        return f"{names[self.label]} taken for {names[self.predicted]}"


def mistakes(
    images: Images, scores: Tensor, labels: Tensor, classes: Sequence[str] = ()
) -> list[Tile]:
    """Return the wrongly classified images with the largest lead of the wrong class, worst first.

    scores (n, L) and labels (n,) in the order of the images; classes: L names, those of the images
    unless given.
    """
    names = classes or images.class_names
    worst = _worst(len(images), scores, labels)
    return [_picture(images, one.place, one.words(names), MOST_WRONG) for one in worst]


def turned_mistakes(images: Images, scores: Tensor, labels: Tensor) -> list[Tile]:
    """Return the pictures, as turned, about whose rotation a classifier is most wrong.

    scores (R * n, R) and labels (R * n,) of all n images in one rotation after the other; label and
    class are numbers of counterclockwise quarter turns. An image is shown in its worst rotation.
    """
    count = len(images)
    tiles = []
    for one in _worst(scores.shape[1] * count, scores, labels, lambda one: [one.place % count]):
        words = f"turned by {90 * one.label}°, taken for {90 * one.predicted}°"
        tiles.append(_picture(images, one.place % count, words, TURNED, one.label))
    return tiles


def corrupted_mistakes(
    images: Images,
    scores: Tensor,
    labels: Tensor,
    corruptions: Sequence[tuple[str, int]],
    classes: Sequence[str],
) -> list[Tile]:
    """Return the worst mistake under each corruption, worst first, and every photograph once.

    Otherwise one photograph under all corruptions would fill the gallery. corruptions (n,): kind
    and severity of each image; classes: L names.
    """

    def shown_once(one: Mistake) -> list[Hashable]:
        # the kind, and the photograph: the class's folder and the file
        return [corruptions[one.place][0], tuple(images.name(one.place).split("/")[-2:])]

    tiles = []
    for one in _worst(len(images), scores, labels, shown_once):
        kind, severity = corruptions[one.place]
        words = f"{one.words(classes)}; {kind.replace('_', ' ')}, severity {severity}"
        tiles.append(_picture(images, one.place, words, CORRUPTED))
    return tiles


def _worst(
    num_images: int,
    scores: Tensor,
    labels: Tensor,
    shown_once: Callable[[Mistake], Sequence[Hashable]] = lambda one: [one.place],
) -> list[Mistake]:
    """Return the wrong answers with the largest lead of the wrong class's score over the label's.

    scores (n, L), labels (n,); shown_once: what of a mistake no other one in the list may have.
    """
    import torch

    _require_same_number(num_images, len(labels))
    scores, labels = scores.float().cpu(), labels.cpu()
    best, predicted = scores.max(dim=1)
    lead = best - scores.gather(1, labels[:, None])[:, 0]
    lead[predicted == labels] = -1.0
    # stable: equal leads give the same pictures every time
    order = torch.sort(lead, descending=True, stable=True).indices
    worst: list[Mistake] = []
    shown: set[Hashable] = set()
    for place in order[lead[order] > 0].tolist():
        one = Mistake(place, int(labels[place]), int(predicted[place]))
        if len(worst) < NUM_IMAGES and shown.isdisjoint(own := shown_once(one)):
            shown.update(own)
            worst.append(one)
    return worst


def _picture(images: Images, place: int, caption: str, group: str, turns: int = 0) -> Tile:
    """Return a small picture of an image, after counterclockwise quarter turns."""
    from transfer.frozen.transforms import rotate_quarters

    small = rotate_quarters(thumbnail(images[place][0], SIDE_PX), turns)
    return Tile(jpeg=jpeg(small), group=group, caption=caption, name=images.name(place))


def _require_same_number(num_images: int, num_labels: int) -> None:
    if num_images != num_labels:
        raise ValueError(f"{num_labels} predictions for {num_images} images")


def misplaced(
    images: Images, scores: Tensor, present: Tensor, absent: Tensor, classes: Sequence[str]
) -> list[Tile]:
    """Return false positives by their high rank, then missed positives by their low rank.

    A class gives at most one of each kind, and no image is shown twice. scores (n, L); present and
    absent (n, L): an image for which both are false is not ranked. Average precision depends on
    ranks alone, and scores of two classes have no common scale.
    """
    _require_same_number(len(images), len(scores))
    ranking, shows = scores.float().cpu().numpy(), present.cpu().numpy()
    ranked = (present | absent).cpu().numpy()
    found: dict[str, list[tuple[float, int, str]]] = {FALSE: [], MISSED: []}
    for category, name in enumerate(classes):
        places = np.flatnonzero(ranked[:, category])
        # stable: equal scores give the same pictures every time
        order = places[np.argsort(-ranking[places, category], kind="stable")]
        right = shows[order, category]
        if right.all() or not right.any():
            continue
        first, last = int(right.argmin()), len(right) - 1 - int(right[::-1].argmax())
        if last < first:  # all present images rank before all absent ones
            continue
        for group, at, sign in ((FALSE, first, 1), (MISSED, last, -1)):
            place, rank = int(order[at]), f"rank {at + 1:,} of {len(order):,}"
            others = [
                c for c, there in zip(classes, shows[place], strict=True) if there and c != name
            ]
            words = f"{rank} for {name}" if group == FALSE else f"{name}, {rank}"
            words += f"; shows {', '.join(others)}" if others else ""
            found[group].append((sign * (at + 1) / len(order), place, words))
    tiles: list[Tile] = []
    shown: set[int] = set()
    for group, rows in found.items():
        most = len(tiles) + NUM_IMAGES // 2
        for _, place, words in sorted(rows, key=itemgetter(0)):
            if place not in shown and len(tiles) < most:
                shown.add(place)
                tiles.append(_picture(images, place, words, group))
    return tiles
