"""LooC's re-split: published val images and a fixed tenth of the training images are tested on."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from transfer.datasets.catalog import DATASETS, open_split
from transfer.datasets.expected import DataError
from transfer.datasets.labeled import RESPLIT_SEED
from transfer.datasets.splits import seeded_ranks


def published(data: Path, part: str) -> list[str]:
    content = json.loads((data / "inat2019" / f"{part}.json").read_text())
    return [f"inat2019/{image['file_name']}" for image in content["images"]]


def names(data: Path, split: str) -> list[str]:
    images = open_split("inat1k", data, split)
    return [images.name(i) for i in range(len(images))]


def test_a_tenth_of_the_published_training_images_is_moved() -> None:
    counts = DATASETS["inat1k"].counts
    assert counts["trainval"] + counts["test"] == 265_213 + 3_030
    assert counts["test"] - 3_030 == round(0.1 * 265_213)


def test_test_is_all_of_val_and_the_first_of_the_draw(small_data: Path) -> None:
    train, val = (published(small_data, part) for part in ("train2019", "val2019"))
    test = names(small_data, "test")
    moved = sorted(set(test) - set(val))
    assert set(val) < set(test)
    assert len(moved) == 24
    ranks = seeded_ranks(train, np.zeros(len(train), dtype=np.int64), RESPLIT_SEED)
    assert moved == sorted(name for name, rank in zip(train, ranks, strict=True) if rank < 24)
    assert sorted(names(small_data, "trainval")) == sorted(set(train) - set(moved))


def test_an_incomplete_annotation_file_is_an_error(copy_of: Callable[[str], Path]) -> None:
    data = copy_of("inat1k")
    path = data / "inat2019" / "train2019.json"
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "images": content["images"][:3]}))
    with pytest.raises(DataError, match="the annotation files are incomplete"):
        open_split("inat1k", data, "test")
