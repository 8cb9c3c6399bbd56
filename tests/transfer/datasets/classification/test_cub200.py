"""CUB's four lists, joined by the images' numbers whatever their order."""

import random
from collections.abc import Callable
from pathlib import Path

from transfer.datasets.catalog import open_split


def test_the_order_of_the_lines_does_not_matter(
    small_data: Path, copy_of: Callable[[str], Path]
) -> None:
    data = copy_of("cub200")
    for listing in ("image_class_labels.txt", "train_test_split.txt"):
        path = data / "CUB_200_2011" / listing
        lines = path.read_text().splitlines()
        path.write_text("\n".join(random.Random(0).sample(lines, len(lines))) + "\n")
    for split in ("trainval", "test"):
        expected = open_split("cub200", small_data, split).fingerprint
        assert open_split("cub200", data, split).fingerprint == expected


def test_classes_are_the_folders_of_their_images(small_data: Path) -> None:
    images = open_split("cub200", small_data, "test")
    folders = [Path(images.name(i)).parent.name for i in range(len(images))]
    assert [images.class_names[label] for label in images.labels] == folders
