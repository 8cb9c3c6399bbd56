"""Images about which a classifier is most wrong: it is sure of another class than the label."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from transfer.galleries.tile import NUM_IMAGES, Tile, jpeg, thumbnail

if TYPE_CHECKING:
    from torch import Tensor

    from transfer.datasets.images import Images

SIDE_PX = 160
MOST_WRONG = "most wrong"
TURNED = "worst rotation"
CORRUPTED = "worst under its corruption"


@dataclass(frozen=True)
class Mistake:
    """A wrong answer of a classifier."""

    place: int
    """Row of the scores."""
    label: int
    predicted: int


def worst_first(scores: Tensor, labels: Tensor) -> Iterator[Mistake]:
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


def mistakes(
    images: Images, scores: Tensor, labels: Tensor, classes: Sequence[str] = ()
) -> list[Tile]:
    """Return the wrongly classified images with the largest lead of the wrong class, worst first.

    scores (n, L) and labels (n,) in the order of the images; classes: L names, those of the images
    unless given.
    """
    _require_same_number(len(images), len(labels))
    names = classes or images.class_names
    return [
        picture(images, one.place, _caption(names, one))
        for one in islice(worst_first(scores, labels), NUM_IMAGES)
    ]


def mistakes_over_runs(
    images: Images, shares: Tensor, labels: Tensor, runs_called: str
) -> list[Tile]:
    """Return the images about which several classifiers are most wrong on average, worst first.

    shares (T, n, L): share of each class by classifier; runs_called: word for the T classifiers,
    such as "trials".
    """
    _require_same_number(len(images), len(labels))
    tiles = []
    for one in islice(worst_first(shares.mean(dim=0), labels), NUM_IMAGES):
        agreeing = int((shares[:, one.place].argmax(dim=1) == one.predicted).sum())
        often = f"in {agreeing} of {len(shares)} {runs_called}"
        caption = f"{_caption(images.class_names, one)} {often}"
        tiles.append(picture(images, one.place, caption))
    return tiles


def turned_mistakes(images: Images, scores: Tensor, labels: Tensor) -> list[Tile]:
    """Return the pictures, as turned, about whose rotation a classifier is most wrong.

    scores (R * n, R) and labels (R * n,) of all n images in one rotation after the other; label and
    class are numbers of counterclockwise quarter turns. An image is shown in its worst rotation.
    """
    turns = scores.shape[1]
    _require_same_number(turns * len(images), len(labels))
    tiles: dict[int, Tile] = {}
    for one in worst_first(scores, labels):
        place = one.place % len(images)
        if place not in tiles:
            caption = f"turned by {90 * one.label}°, taken for {90 * one.predicted}°"
            tiles[place] = picture(images, place, caption, group=TURNED, turns=one.label)
        if len(tiles) == NUM_IMAGES:
            break
    return list(tiles.values())


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
    _require_same_number(len(images), len(labels))
    tiles: list[Tile] = []
    kinds, photographs = set(), set()
    for one in worst_first(scores, labels):
        kind, severity = corruptions[one.place]
        # the class's folder and the file
        photograph = tuple(images.name(one.place).split("/")[-2:])
        if kind in kinds or photograph in photographs:
            continue
        kinds.add(kind)
        photographs.add(photograph)
        words = f"{kind.replace('_', ' ')}, severity {severity}"
        caption = f"{_caption(classes, one)}; {words}"
        tiles.append(picture(images, one.place, caption, group=CORRUPTED))
        if len(tiles) == NUM_IMAGES:
            break
    return tiles


def picture(
    images: Images, place: int, caption: str, *, group: str = MOST_WRONG, turns: int = 0
) -> Tile:
    """Return a small picture of an image, after counterclockwise quarter turns."""
    from transfer.frozen.transforms import rotate_quarters

    small = thumbnail(images[place][0], SIDE_PX)
    return Tile(
        jpeg=jpeg(rotate_quarters(small, turns)),
        group=group,
        caption=caption,
        name=images.name(place),
    )


def _caption(names: Sequence[str], mistake: Mistake) -> str:
    return f"{names[mistake.label]} taken for {names[mistake.predicted]}"


def _require_same_number(num_images: int, num_labels: int) -> None:
    if num_images != num_labels:
        raise ValueError(f"{num_labels} predictions for {num_images} images")
