"""Seeded draws: the same on every machine and in every directory order."""

import hashlib
from pathlib import Path

import numpy as np
import pytest

from transfer.datasets.expected import DataError, Sizes
from transfer.datasets.images import Images, encode_names, image_files
from transfer.datasets.splits import (
    SEED,
    balanced_split,
    draw_balanced_fraction,
    seeded_ranks,
    uniform_split,
)

NAMES = [f"folder/{i:03d}.jpg" for i in range(60)]


def pool(names: list[str]) -> Images:
    """Names of one folder, in three classes."""
    labels = [int(name[-7:-4]) % 3 for name in names]
    return image_files(Path("data"), names, labels, ["a", "b", "c"])


def names_of(images: Images) -> list[str]:
    return [images.name(i) for i in range(len(images))]


def test_ranks_follow_the_hash_of_seed_and_name() -> None:
    def draw(name: str) -> str:
        return hashlib.sha256(f"{SEED}/{name}".encode()).hexdigest()

    for group in (0, 1, 2):
        members = [name for i, name in enumerate(NAMES) if i % 3 == group]
        ranks = seeded_ranks(encode_names(NAMES), np.arange(60) % 3)[group::3]
        assert [members[i] for i in np.argsort(ranks)] == sorted(members, key=draw)


def test_the_draw_of_this_seed_never_changes() -> None:
    val = balanced_split(pool(NAMES), "val", val_per_class=1)
    assert names_of(val) == ["folder/019.jpg", "folder/038.jpg", "folder/048.jpg"]


def test_a_class_too_small_to_hold_out_is_named() -> None:
    with pytest.raises(DataError, match="3 of 3 classes, first 'a'"):
        balanced_split(pool(NAMES), "val", val_per_class=20)
    with pytest.raises(DataError, match="60 images in trainval"):
        uniform_split(pool(NAMES), "val", Sizes(classes=3, counts={"val": 60}))


def test_shares_are_balanced_nested_and_the_same_everywhere() -> None:
    images = pool([f"train/{i:03d}.jpg" for i in range(60)])
    few, some, more, whole = (
        draw_balanced_fraction(images, part) for part in (0.1, 0.25, 0.5, 1.0)
    )
    assert np.bincount(some.labels.numpy()).tolist() == [5, 5, 5]
    assert {*names_of(few)} < {*names_of(more)} < {*names_of(whole)}
    assert len(whole) == 60
    sampled = ["002", "007", "016", "030", "033", "035"]
    assert names_of(few) == [f"train/{number}.jpg" for number in sampled]
