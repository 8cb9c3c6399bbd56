"""The choice of images, masks, and pictures as files."""

import json
from pathlib import Path

import numpy as np
from PIL import Image

from transfer.datasets.segmented import Segmented
from transfer.galleries.objects import segments
from transfer.galleries.tile import MAX_BYTES, Tile, select_images, update_gallery

TILE = Tile(jpeg=b"\xff\xd8\xff", group="found", caption="a cat", name="a.jpg")


def test_chosen_images_do_not_depend_on_order() -> None:
    names = [f"images/{i}.jpg" for i in range(50)]
    turned = [f"elsewhere/{i}.jpg" for i in reversed(range(50))]
    first = select_images(names)
    assert first == sorted(49 - i for i in select_images(turned))
    assert len(first) == 12


def test_masks_are_sorted_by_correct_pixels(tmp_path: Path) -> None:
    for name in ("a", "b"):
        Image.new("RGB", (4, 4)).save(tmp_path / f"{name}.jpg")
        mask = np.array([[1, 1, 255, 0]] * 4, np.uint8)
        Image.fromarray(mask).save(tmp_path / f"{name}.png")
    split = Segmented(tmp_path, ["a.jpg", "b.jpg"], ["a.png", "b.png"], ("background", "cat"))
    wrong, right = np.zeros((4, 4), np.uint8), np.array([[1, 1, 0, 0]] * 4, np.uint8)
    first, second = segments(split, lambda i: (wrong, right)[i])
    assert (first.name, first.group) == ("b.jpg", "mostly right")
    assert first.caption == "100 % of the pixels right; truth cat; predicted cat"
    assert second.caption.startswith("33 % of the pixels right; truth cat; predicted nothing")


def test_pictures_replace_earlier_ones_and_stay_small(tmp_path: Path) -> None:
    record = tmp_path / "task.paper.seed0.json"
    update_gallery(record, lambda: [TILE, TILE], finished="")
    large = Tile(jpeg=bytes(MAX_BYTES + 1), group="", caption="", name="")
    update_gallery(record, lambda: [large, TILE], finished="")
    folder = tmp_path / "task.paper.seed0.gallery"
    (line,) = (folder / "captions.jsonl").read_text().splitlines()
    assert json.loads(line)["file"] == "01.jpg"
    assert sorted(path.name for path in folder.iterdir()) == ["01.jpg", "captions.jsonl"]
    assert [path.name for path in tmp_path.iterdir()] == [folder.name]


def test_pictures_of_an_earlier_record_do_not_outlive_it(tmp_path: Path) -> None:
    def fails() -> list[Tile]:
        raise ValueError("no image")

    record = tmp_path / "task.json"
    for draw in (fails, list[Tile]):
        update_gallery(record, lambda: [TILE], finished="")
        assert list(tmp_path.iterdir()) == [tmp_path / "task.gallery"]
        update_gallery(record, draw, finished="")
        assert list(tmp_path.iterdir()) == []
