"""Pictures of a classifier's mistakes: over several runs, turned, corrupted, and ranked."""

from collections.abc import Sequence
from operator import itemgetter

import numpy as np
import torch

from transfer.datasets.images import ImageArrays, Images
from transfer.galleries.mistakes import (
    corrupted_mistakes,
    mistakes,
    worst_ranked,
)

CLASSES = ("cat", "dog", "fox")


def images_named(names: Sequence[str]) -> Images:
    pixels = np.zeros((len(names), 8, 8, 3), np.uint8)
    pixels[:, 0] = 255  # a white row on top
    encoded = np.array([name.encode() for name in names])
    return Images(ImageArrays(pixels, encoded), np.zeros(len(names), np.int64), CLASSES)


def numbered(count: int) -> Images:
    return images_named([f"{i}.png" for i in range(count)])


def test_the_image_with_the_largest_lead_of_a_wrong_class_comes_first() -> None:
    scores = torch.tensor([[1.0, 2.0], [5.0, 1.0], [9.0, 1.0], [1.0, 2.0]])
    labels = torch.tensor([0, 0, 1, 1])
    tiles = mistakes(numbered(4), scores, labels)
    assert [tile.name for tile in tiles] == ["2.png", "0.png"]
    assert tiles[0].caption == "dog taken for cat"
    # a classifier may have other classes than the images
    assert mistakes(numbered(4), scores, labels, ("a", "b"))[0].caption == "b taken for a"


def test_a_corruption_and_a_photograph_are_shown_once() -> None:
    positions = [("fog", 5, "a"), ("fog", 1, "b"), ("glass_blur", 5, "a"), ("glass_blur", 2, "c")]
    images = images_named(
        [f"set/{kind}/{severity}/n1/{name}" for kind, severity, name in positions]
    )
    scores = torch.tensor([[0.0, 9.0], [0.0, 8.0], [0.0, 7.0], [0.0, 6.0]])
    corruptions = [(kind, severity) for kind, severity, _ in positions]
    labels = torch.zeros(4, dtype=torch.int64)
    tiles = corrupted_mistakes(images, scores, labels, corruptions, CLASSES)
    assert [tile.caption for tile in tiles] == [
        "cat taken for dog; fog, severity 5",
        "cat taken for dog; glass blur, severity 2",
    ]


def test_misplaced_images_are_those_of_a_count_over_all_pairs() -> None:
    scores = torch.rand(30, 3, generator=torch.Generator().manual_seed(0))
    labels = (torch.arange(90).reshape(30, 3) * 7 % 11 % 3) - 1  # -1 absent, 0 difficult, 1 present
    tiles = worst_ranked(numbered(30), scores, labels == 1, labels == -1, CLASSES)
    result: dict[str, list[tuple[float, str]]] = {"false positive": [], "missed positive": []}
    for category in range(3):
        ranked = [i for i in range(30) if labels[i, category] != 0]
        ranks = {
            i: 1 + sum(bool(scores[j, category] > scores[i, category]) for j in ranked)
            for i in ranked
        }
        first = min((i for i in ranked if labels[i, category] == -1), key=lambda i: ranks[i])
        last = max((i for i in ranked if labels[i, category] == 1), key=lambda i: ranks[i])
        result["false positive"].append((ranks[first] / len(ranked), f"{first}.png"))
        result["missed positive"].append((-ranks[last] / len(ranked), f"{last}.png"))
    # the sort is stable: of equal ranks, the first class stands first
    names = [
        (group, name)
        for group, rows in result.items()
        for _, name in sorted(rows, key=itemgetter(0))
    ]
    assert len({name for _, name in names}) == 6
    assert [(tile.group, tile.name) for tile in tiles] == names
