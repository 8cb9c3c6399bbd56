"""Training images: listing, order, labels, fractions, and changes during a run."""

import os
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from pretrain.data.images import BatchPlan, DataError
from pretrain.data.listing import find_images, find_styles
from tests.pretrain.pixels.hidden import HIDDEN_FILES
from transfer.datasets.images import read_class_folders


def names(folder: Path) -> list[str]:
    """Relative names of the listed images, in order."""
    images = find_images(folder)
    return [images.name(location) for location in range(len(images))]


def test_flat_and_nested_folders_are_found_whatever_the_labels(image_folder: Path) -> None:
    Image.new("L", (9, 5)).save(image_folder / "flat.jpg")
    (image_folder / "notes.txt").write_text("no image")
    images = find_images(image_folder)
    location = names(image_folder).index("flat.jpg")
    assert len(images) == 21
    assert (images.heights[location], images.widths[location]) == (5, 9)
    assert images.path(location) == image_folder / "flat.jpg"


def test_hidden_and_system_files_are_not_images(image_folder: Path) -> None:
    expected = names(image_folder)
    for name in HIDDEN_FILES:
        for folder in ("", "warm"):
            file = image_folder / folder / name
            file.parent.mkdir(parents=True, exist_ok=True)
            Image.new("L", (9, 5)).save(file, "PNG")
    images = find_images(image_folder)
    assert names(image_folder) == expected
    assert images.classes == ["cold", "warm"]


@pytest.mark.parametrize("suffix", [".jfif", ".JPG", ".gif", ".pgm"])
def test_suffixes_of_images_are_those_of_evaluation(image_folder: Path, suffix: str) -> None:
    Image.new("L", (9, 5)).save(image_folder / "warm" / f"new{suffix}", "PNG")
    (image_folder / "set").mkdir()
    for name in ("cold", "warm"):
        (image_folder / name).rename(image_folder / "set" / name)
    in_evaluation = read_class_folders(image_folder, image_folder / "set", ["cold", "warm"])
    assert names(image_folder) == [in_evaluation.name(i) for i in range(21)]


@pytest.mark.parametrize("kind", ["file", "link to nothing", "link to itself"])
def test_what_is_no_image_is_named_and_refused_unless_tolerated(
    image_folder: Path, kind: str
) -> None:
    name = "broken.png" if kind == "file" else "class"  # a class folder may be a link
    if kind == "file":
        (image_folder / name).write_bytes(b"not a picture")
    else:
        (image_folder / name).symlink_to("absent" if kind == "link to nothing" else name)
    with pytest.raises(DataError, match=rf"1 of 21 images are unreadable \({name}: "):
        find_images(image_folder)
    assert len(find_images(image_folder, tolerated=1)) == 20


def test_a_missing_or_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="not a folder"):
        find_images(tmp_path / "absent")
    with pytest.raises(DataError, match="contain no images"):
        find_images(tmp_path)


def test_the_fingerprint_follows_names_and_sizes(image_folder: Path) -> None:
    previous = find_images(image_folder).fingerprint
    assert previous == "8da9d6dd34d5e370"  # as in records of before
    (image_folder / "warm" / "0.png").rename(image_folder / "warm" / "zero.png")
    assert find_images(image_folder).fingerprint != previous


def test_classes_are_the_sorted_folders_and_labels_their_places(image_folder: Path) -> None:
    (image_folder / "between" / "deeper").mkdir(parents=True)
    Image.new("L", (9, 5)).save(image_folder / "between" / "deeper" / "0.png")
    (image_folder / "no images").mkdir()
    images = find_images(image_folder)
    assert images.classes == ["between", "cold", "warm"]
    assert images.labels.tolist() == [0] + [1] * 10 + [2] * 10
    assert [name.split("/")[0] for name in names(image_folder)] == [
        images.classes[label] for label in images.labels
    ]


def test_without_links_the_order_is_that_of_sorted_paths(image_folder: Path) -> None:
    odd = "warm-er/\udcff.png"  # no UTF-8
    for name in ("warm.png", "warm/a/1.png", "warm/B/1.png", "cold/Big.JPG", odd):
        (image_folder / name).parent.mkdir(exist_ok=True)
        Image.new("L", (9, 5)).save(image_folder / name)
    expected = sorted(image_folder.rglob("*.[pJ][nP][gG]"))
    assert names(image_folder) == [str(file.relative_to(image_folder)) for file in expected]


def test_linked_folders_are_followed_and_named_by_the_link(
    image_folder: Path, tmp_path: Path
) -> None:
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / "b").symlink_to(image_folder / "cold")
    (linked / "a").symlink_to(image_folder / "warm")
    images = find_images(linked)
    assert (len(images), images.classes) == (20, ["a", "b"])
    assert images.path(0) == linked / "a" / "0.png"


@pytest.mark.parametrize("target", [".", "..", "../..", "warm"])
def test_a_link_to_a_folder_around_it_or_beside_it_adds_nothing(
    image_folder: Path, target: str
) -> None:
    previous = names(image_folder)
    link = Path("warm" if target.startswith("..") else "") / "again"
    (image_folder / link).symlink_to(target)
    assert names(image_folder) == previous


@pytest.mark.parametrize("name", ["cold", "."])
def test_a_folder_that_may_not_be_listed_is_named(
    image_folder: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    scandir = os.scandir

    def refuses(folder: Path) -> object:
        if Path(folder) == image_folder / name:
            raise PermissionError(13, "Permission denied", str(folder))
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", refuses)
    with pytest.raises(DataError, match=rf"1 of \d+ images are unreadable \({name}: "):
        find_images(image_folder)


def plan(rank: int = 0, num_processes: int = 1, seed: int = 0) -> BatchPlan:
    return BatchPlan(num_images=23, batch_size=6, seed=seed, rank=rank, num_processes=num_processes)


def test_epoch_uses_each_image_at_most_once() -> None:
    batches = [plan().batch(step)[1] for step in range(3)]
    assert plan().steps_per_epoch == 3
    assert len(np.unique(np.concatenate(batches))) == 18


def test_order_changes_with_epoch_and_seed_only() -> None:
    epoch, first = plan().batch(0)
    assert epoch == 0
    assert np.array_equal(first, plan().batch(0)[1])
    assert not np.array_equal(first, plan().batch(3)[1])
    assert not np.array_equal(first, plan(seed=1).batch(0)[1])


def test_the_shares_of_two_processes_make_the_batch_of_one() -> None:
    shares = [plan(rank, 2).batch(4)[1] for rank in range(2)]
    assert np.array_equal(np.concatenate(shares), plan().batch(4)[1])


def test_an_impossible_plan_is_refused() -> None:
    for changes, message in (
        ({"batch_size": 24}, "23 images do not fill one batch of 24"),
        ({"num_processes": 4}, "6 does not divide among 4 processes"),
    ):
        with pytest.raises(DataError, match=message):
            BatchPlan(**({"num_images": 23, "batch_size": 6, "seed": 0} | changes))


def test_styles_are_the_sorted_folders_and_copies_keep_the_name(
    image_folder: Path, style_bank: Path
) -> None:
    (style_bank / "README").write_text("made by AdaIN")
    (style_bank / ".ipynb_checkpoints").mkdir()
    (style_bank / "@eaDir").mkdir()
    styles = find_styles(style_bank)
    assert styles == (style_bank / "munch", style_bank / "seurat")
