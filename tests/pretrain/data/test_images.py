import os
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from pretrain.data.images import BatchPlan, DataError, find_images, read_pixels


def test_flat_and_nested_folders_are_found_whatever_the_labels(image_folder: Path) -> None:
    Image.new("L", (9, 5)).save(image_folder / "flat.jpg")
    (image_folder / "notes.txt").write_text("no image")
    images = find_images(image_folder)
    assert len(images) == 21
    place = images.files.index(image_folder / "flat.jpg")
    assert (images.heights[place], images.widths[place]) == (5, 9)


def test_a_broken_image_is_named_and_refused_unless_tolerated(image_folder: Path) -> None:
    (image_folder / "warm" / "broken.png").write_bytes(b"not a picture")
    with pytest.raises(DataError, match=r"1 of 21 images are unreadable \(warm/broken.png\)"):
        find_images(image_folder)
    assert len(find_images(image_folder, tolerated=1)) == 20


def test_a_missing_or_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="is no folder"):
        find_images(tmp_path / "absent")
    with pytest.raises(DataError, match="holds no image"):
        find_images(tmp_path)


def test_a_truncated_image_is_named_when_it_is_read(tmp_path: Path) -> None:
    file = tmp_path / "cut.jpg"
    Image.effect_noise((64, 64), 50).save(file)
    file.write_bytes(file.read_bytes()[:600])
    with pytest.raises(DataError, match=r"cut.jpg does not decode"):
        read_pixels(file)


@pytest.mark.parametrize("mode", ["RGB", "L", "CMYK"])
def test_pixels_are_those_of_pillow(tmp_path: Path, mode: str) -> None:
    noise = np.random.default_rng(0).integers(0, 255, (24, 32, 3), dtype=np.uint8)
    Image.fromarray(noise).convert(mode).save(tmp_path / "image.jpg")
    with Image.open(tmp_path / "image.jpg") as image:
        expected = torch.from_numpy(np.array(image.convert("RGB")))
    apart = (read_pixels(tmp_path / "image.jpg").int() - expected.int()).abs()
    assert apart.max() <= (1 if mode == "CMYK" else 0)


def test_the_fingerprint_follows_names_and_sizes(image_folder: Path) -> None:
    before = find_images(image_folder).fingerprint
    assert find_images(image_folder).fingerprint == before
    (image_folder / "warm" / "0.png").rename(image_folder / "warm" / "zero.png")
    assert find_images(image_folder).fingerprint != before


def test_names_that_are_not_utf8_are_read_like_others(image_folder: Path) -> None:
    before = find_images(image_folder)
    latin = Path(os.fsdecode(os.fsencode(image_folder / "warm") + b"/caf\xe9.png"))
    pixels = read_pixels(image_folder / "warm" / "0.png")
    (image_folder / "warm" / "0.png").rename(latin)
    images = find_images(image_folder)
    assert latin in images.files
    assert images.fingerprint != before.fingerprint
    assert torch.equal(read_pixels(latin), pixels)


def test_an_unreadable_image_whose_name_is_not_utf8_is_named(image_folder: Path) -> None:
    Path(os.fsdecode(os.fsencode(image_folder) + b"/caf\xe9.png")).write_bytes(b"no picture")
    with pytest.raises(DataError, match=r"caf\udce9\.png"):
        find_images(image_folder)


def test_classes_are_the_sorted_folders_and_labels_their_places(image_folder: Path) -> None:
    (image_folder / "between" / "deeper").mkdir(parents=True)
    Image.new("L", (9, 5)).save(image_folder / "between" / "deeper" / "0.png")
    (image_folder / "no images").mkdir()
    images = find_images(image_folder)
    assert images.classes == ["between", "cold", "warm"]
    for file, label in zip(images.files, images.labels, strict=True):
        assert images.classes[label] == file.relative_to(image_folder).parts[0]
    assert images.labels.tolist() == [0] + [1] * 10 + [2] * 10


def names(folder: Path) -> list[str]:
    """Relative names of the images that are found, in their order."""
    return [file.relative_to(folder).as_posix() for file in find_images(folder).files]


def test_without_links_the_order_is_that_of_sorted_paths(image_folder: Path) -> None:
    for name in ("warm.png", "warm/a/1.png", "warm/B/1.png", "warm-er/1.png", "cold/.hidden.JPG"):
        (image_folder / name).parent.mkdir(exist_ok=True)
        Image.new("L", (9, 5)).save(image_folder / name)
    assert tuple(find_images(image_folder).files) == tuple(
        sorted(image_folder.rglob("*.[pJ][nP][gG]"))
    )


def test_linked_folders_are_followed_and_named_by_the_link(
    image_folder: Path, tmp_path: Path
) -> None:
    linked = tmp_path / "linked"
    linked.mkdir()
    (linked / "b").symlink_to(image_folder / "cold")
    (linked / "a").symlink_to(image_folder / "warm")
    images = find_images(linked)
    assert (len(images), images.num_folders, images.classes) == (20, 2, ["a", "b"])
    assert images.labels.tolist() == [0] * 10 + [1] * 10
    assert images.files[0] == linked / "a" / "0.png"


def test_a_folder_of_links_has_the_fingerprint_of_the_copy(
    image_folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "linked").mkdir()
    for folder in image_folder.iterdir():
        (tmp_path / "linked" / folder.name).symlink_to(folder)
    assert find_images(tmp_path / "linked").fingerprint == find_images(image_folder).fingerprint


@pytest.mark.parametrize("target", [".", "..", "../..", "warm"])
def test_a_link_to_a_folder_around_it_or_beside_it_adds_nothing(
    image_folder: Path, target: str
) -> None:
    before = names(image_folder)
    where = image_folder / ("warm" if target.startswith("..") else "") / "again"
    where.symlink_to(target)
    images = find_images(image_folder)
    assert names(image_folder) == before
    assert [link.is_relative_to(where) for link in images.repeated] == [True]


def test_two_folders_that_link_to_each_other_are_read_once_each(tmp_path: Path) -> None:
    for name, other in (("a", "b"), ("b", "a")):
        (tmp_path / name).mkdir()
        Image.new("L", (9, 5)).save(tmp_path / name / "0.png")
        (tmp_path / name / "other").symlink_to(tmp_path / other)
    assert names(tmp_path) == ["a/0.png", "b/0.png"]


def test_of_two_links_to_one_folder_the_first_by_name_is_read(
    image_folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    for name in ("hound", "dog"):
        (tmp_path / "data" / name).symlink_to(image_folder / "cold")
    images = find_images(tmp_path / "data")
    assert (len(images), images.classes) == (10, ["dog"])
    assert images.repeated == (tmp_path / "data" / "hound",)


@pytest.mark.parametrize("target", ["absent", "class"])
def test_a_link_that_leads_nowhere_is_named_and_refused_unless_tolerated(
    image_folder: Path, target: str
) -> None:
    (image_folder / "class").symlink_to(target)
    with pytest.raises(DataError, match=r"1 of 21 images are unreadable \(class\)"):
        find_images(image_folder)
    assert len(find_images(image_folder, tolerated=1)) == 20


def plan(rank: int = 0, num_processes: int = 1, seed: int = 0) -> BatchPlan:
    return BatchPlan(num_images=23, batch_size=6, seed=seed, rank=rank, num_processes=num_processes)


def test_an_epoch_uses_each_image_at_most_once_and_drops_the_rest() -> None:
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


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"batch_size": 24}, "23 images do not fill one batch of 24"),
        ({"num_processes": 4}, "6 does not divide among 4 processes"),
        ({"seed": -1}, "--seed -1 is negative"),
    ],
)
def test_an_impossible_plan_is_refused(changes: dict[str, int], message: str) -> None:
    with pytest.raises(DataError, match=message):
        BatchPlan(**({"num_images": 23, "batch_size": 6, "seed": 0} | changes))


def test_a_folder_that_may_not_be_listed_is_named(
    image_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden = next(path for path in sorted(image_folder.iterdir()) if path.is_dir())
    scandir = os.scandir

    def refuses(folder: str) -> object:
        if Path(folder) == hidden:
            raise PermissionError(13, "Permission denied")
        return scandir(folder)

    monkeypatch.setattr(os, "scandir", refuses)
    with pytest.raises(DataError, match=rf"1 of \d+ images are unreadable \({hidden.name}\)"):
        find_images(image_folder)
