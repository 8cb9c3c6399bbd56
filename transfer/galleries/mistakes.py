"""Images about which a classifier is most wrong: it is sure of another class than the label.

Where an image has several classes: images that the ranking for a class has in a wrong place.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING

from transfer.galleries.tile import NUM_IMAGES, Tile, jpeg, thumbnail

if TYPE_CHECKING:
    from torch import Tensor

    from transfer.datasets.images import Images

SIDE_PX = 160
MOST_WRONG = "most wrong"
TURNED = "worst rotation"
CORRUPTED = "worst under its corruption"
FALSE, MISSED = "false positive", "missed positive"


@dataclass(frozen=True)
class Mistake:
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
    return _worst(images, scores, labels, lambda one: one.words(names))


def mistakes_over_runs(
    images: Images, shares: Tensor, labels: Tensor, runs_called: str
) -> list[Tile]:
    """Return the images about which several classifiers are most wrong on average, worst first.

    shares (T, n, L): share of each class by classifier; runs_called: word for the T classifiers,
    such as "trials".
    """

    def caption(one: Mistake) -> str:
        agreeing = int((shares[:, one.place].argmax(dim=1) == one.predicted).sum())
        return f"{one.words(images.class_names)} in {agreeing} of {len(shares)} {runs_called}"

    return _worst(images, shares.mean(dim=0), labels, caption)


def turned_mistakes(images: Images, scores: Tensor, labels: Tensor) -> list[Tile]:
    """Return the pictures, as turned, about whose rotation a classifier is most wrong.

    scores (R * n, R) and labels (R * n,) of all n images in one rotation after the other; label and
    class are numbers of counterclockwise quarter turns. An image is shown in its worst rotation.
    """

    def caption(one: Mistake) -> str:
        return f"turned by {90 * one.label}°, taken for {90 * one.predicted}°"

    return _worst(images, scores, labels, caption, group=TURNED, rotations=scores.shape[1])


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

    def caption(one: Mistake) -> str:
        kind, severity = corruptions[one.place]
        return f"{one.words(classes)}; {kind.replace('_', ' ')}, severity {severity}"

    def shown_once(one: Mistake) -> list[Hashable]:
        # the kind, and the photograph: the class's folder and the file
        return [corruptions[one.place][0], tuple(images.name(one.place).split("/")[-2:])]

    return _worst(images, scores, labels, caption, group=CORRUPTED, shown_once=shown_once)


def _worst(
    images: Images,
    scores: Tensor,
    labels: Tensor,
    caption: Callable[[Mistake], str],
    *,
    group: str = MOST_WRONG,
    rotations: int = 1,
    shown_once: Callable[[Mistake], Sequence[Hashable]] | None = None,
) -> list[Tile]:
    """Return pictures of the worst mistakes.

    rotations: number of rotations of every image, one after the other. shown_once: what of a
    mistake no other picture may show; its image unless given.
    """
    _require_same_number(rotations * len(images), len(labels))
    tiles: list[Tile] = []
    shown: set[Hashable] = set()
    for one in _worst_first(scores, labels):
        place = one.place % len(images)
        own = [place] if shown_once is None else shown_once(one)
        if shown.isdisjoint(own):
            shown.update(own)
            turns = one.label if rotations > 1 else 0
            tiles.append(_picture(images, place, caption(one), group, turns))
        if len(tiles) == NUM_IMAGES:
            break
    return tiles


def _worst_first(scores: Tensor, labels: Tensor) -> Iterator[Mistake]:
    """Yield the wrong answers by the lead of the wrong class's score over the label's.

    scores (n, L), labels (n,).
    """
    import torch

    scores, labels = scores.float().cpu(), labels.cpu()
    best, predicted = scores.max(dim=1)
    lead = best - scores.gather(1, labels[:, None])[:, 0]
    lead[predicted == labels] = -1.0
    # stable: equal leads give the same pictures every time
    order = torch.sort(lead, descending=True, stable=True).indices
    for place in order[lead[order] > 0].tolist():
        yield Mistake(place, int(labels[place]), int(predicted[place]))


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
    scores, present, absent = scores.float().cpu(), present.cpu(), absent.cpu()
    found: dict[str, list[tuple[float, int, str]]] = {FALSE: [], MISSED: []}
    for category, name in enumerate(classes):
        own, ranked = present[:, category], present[:, category] | absent[:, category]
        order, first, last = _ends(scores[:, category], own, ranked)
        if last > first:  # not all present images rank before all absent ones
            for group, at, sign in ((FALSE, first, 1), (MISSED, last, -1)):
                rank = f"rank {at + 1:,} of {len(order):,}"
                place = order[at]
                others = [c for c, shown in zip(classes, present[place], strict=True) if shown]
                words = _rank_words(group, name, rank, [c for c in others if c != name])
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


def _ends(scores: Tensor, present: Tensor, ranked: Tensor) -> tuple[list[int], int, int]:
    """Return the ranking, the first absent place in it and the last present one.

    Both are 0 if there is nothing of one kind. All (n,).
    """
    import torch

    places = ranked.nonzero().flatten()
    # stable: equal scores give the same pictures every time
    order = places[torch.sort(scores[places], descending=True, stable=True).indices]
    right = present[order]
    if not bool(right.any()) or bool(right.all()):
        return order.tolist(), 0, 0
    return order.tolist(), int((~right).nonzero()[0]), int(right.nonzero()[-1])


def _rank_words(group: str, name: str, rank: str, others: Sequence[str]) -> str:
    """Return rank and class, and what else the image shows."""
    also = ", ".join(others)
    if group == FALSE:
        return f"{rank} for {name}; shows {also or 'none of the classes'}"
    return f"{name}, {rank}" + (f"; also shows {also}" if also else "")
