"""Images that the ranking for a class has in a wrong place, where an image has several classes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from transfer.galleries.mistakes import picture
from transfer.galleries.tile import NUM_IMAGES, Tile

if TYPE_CHECKING:
    from torch import Tensor

    from transfer.datasets.images import Images

FALSE, MISSED = "false positive", "missed positive"


@dataclass(frozen=True)
class Misplaced:
    """An image in a wrong place of the ranking for a class."""

    place: int
    """Row of the scores."""
    category: int
    """Column of the scores."""
    rank: int
    """1 for the image that scores highest."""
    of: int
    """Number of ranked images."""


def misplaced(
    images: Images, scores: Tensor, present: Tensor, absent: Tensor, classes: Sequence[str]
) -> list[Tile]:
    """Return false positives by their high rank, then missed positives by their low rank.

    A class gives at most one of each kind, and no image is shown twice. scores (n, L); present and
    absent (n, L): an image for which both are false is not ranked. Average precision depends on
    ranks alone, and scores of two classes have no common scale.
    """
    if len(images) != len(scores):
        raise ValueError(f"{len(scores)} predictions for {len(images)} images")
    scores, present, absent = scores.float().cpu(), present.cpu(), absent.cpu()
    both = [_of_class(scores, present, absent, category) for category in range(len(classes))]
    false = sorted((one for one, _ in both if one), key=lambda one: one.rank / one.of)
    missed = sorted((one for _, one in both if one), key=lambda one: -one.rank / one.of)
    tiles: list[Tile] = []
    shown: set[int] = set()
    for group, found in ((FALSE, false), (MISSED, missed)):
        number = 0
        for one in found:
            if one.place in shown or number == NUM_IMAGES // 2:
                continue
            shown.add(one.place)
            number += 1
            caption = _caption(one, group, present[one.place].tolist(), classes)
            tiles.append(picture(images, one.place, caption, group=group))
    return tiles


def _of_class(
    scores: Tensor, present: Tensor, absent: Tensor, category: int
) -> tuple[Misplaced | None, Misplaced | None]:
    """Return the absent image that ranks highest, and the present one that ranks lowest.

    Both are None if all present images rank before all absent ones.
    """
    import torch

    own, positive = scores[:, category], present[:, category]
    ranked = (positive | absent[:, category]).nonzero().flatten()
    # stable: equal scores give the same pictures every time
    order = ranked[torch.sort(own[ranked], descending=True, stable=True).indices]
    right = positive[order]
    if not bool(right.any()) or bool(right.all()):
        return None, None
    first = int((~right).nonzero()[0])
    last = int(right.nonzero()[-1])
    if last < first:
        return None, None
    return (
        Misplaced(int(order[first]), category, first + 1, len(order)),
        Misplaced(int(order[last]), category, last + 1, len(order)),
    )


def _caption(one: Misplaced, group: str, row: Sequence[bool], classes: Sequence[str]) -> str:
    """Return rank and class, and what else the image shows."""
    name = classes[one.category]
    rank = f"rank {one.rank:,} of {one.of:,}"
    others = ", ".join(
        other
        for other, shown, i in zip(classes, row, range(len(classes)), strict=True)
        if shown and i != one.category
    )
    if group == FALSE:
        return f"{rank} for {name}; shows {others or 'none of the classes'}"
    return f"{name}, {rank}" + (f"; also shows {others}" if others else "")
