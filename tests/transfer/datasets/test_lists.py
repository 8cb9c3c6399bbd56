"""Lists as editors and other systems leave them are read.

A wrong line is named.
"""

import codecs
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.transfer.datasets.conftest import CopyOf
from transfer.datasets.catalog import dataset_info, open_any, open_split
from transfer.datasets.check import check
from transfer.datasets.expected import SMALL_DATA, DataError, small_sizes

SETS = ("aircraft", "cub200", "dtd", "in1k_1pct", "pets", "places365", "sun397")
VOC = ("voc07", "voc0712", "voc12", "voc12_seg")
CHANGES: dict[str, Callable[[bytes], bytes]] = {
    "byte order mark": lambda content: codecs.BOM_UTF8 + content,
    "UTF-16 of Windows": lambda content: content.decode().encode("utf-16"),
    "line ends of Windows": lambda content: content.replace(b"\n", b"\r\n"),
    "blanks and empty lines": lambda content: b"\n" + content.replace(b"\n", b" \t\n\n"),
    "no last line end": lambda content: content.rstrip(b"\n"),
}


@pytest.fixture(scope="module")
def linked(small_data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the small data whose lists may be replaced.

    Its images are links.
    """
    data = tmp_path_factory.mktemp("lists") / "data"
    for key in SETS + VOC:
        for folder in filter(None, (dataset_info(key).folder, dataset_info(key).second_folder)):
            if not (data / folder).exists():
                shutil.copytree(small_data / folder, data / folder, copy_function=os.link)
    shutil.copy(small_data / SMALL_DATA, data)
    return data


@pytest.mark.parametrize("change", CHANGES)
def test_lists_are_read_with(change: str, small_data: Path, linked: Path) -> None:
    for file in linked.rglob("*.txt"):
        file.unlink()  # the original has the same inode
        file.write_bytes(CHANGES[change]((small_data / file.relative_to(linked)).read_bytes()))
    for key in SETS + VOC:
        for split in ("trainval", "test"):
            expected = open_any(key, small_data, split)
            assert open_any(key, linked, split).fingerprint == expected.fingerprint, (key, split)


WRONG_LINES = {
    "cub200": ("CUB_200_2011/image_class_labels.txt", "seven 1"),
    "dtd": ("dtd/dtd/labels/test1.txt", "banded/banded_0001.jpg banded"),
    "pets": ("oxford-iiit-pet/annotations/test.txt", "Abyssinian_1 one 1 1"),
    "places365": ("places365/places365_val.txt", "Places365_val_00000001.jpg"),
    "voc07": ("VOCdevkit/VOC2007/ImageSets/Main/cow_test.txt", "000201"),
}


@pytest.mark.parametrize("key", WRONG_LINES)
def test_wrong_line_is_named_by_file_and_number(key: str, copy_of: CopyOf) -> None:
    data, (listing, line) = copy_of(key), WRONG_LINES[key]
    lines = (data / listing).read_text().splitlines()
    lines[3] = line
    (data / listing).write_text("\n".join(["", *lines]))
    problems = check(key, data, decode=False).problems
    assert any(f"{listing}, line 5: " in problem for problem in problems), problems


def test_list_in_another_encoding_is_named(copy_of: CopyOf) -> None:
    data = copy_of("dtd")
    listing = data / "dtd/dtd/labels/test1.txt"
    listing.write_bytes(b"banded/banded_0033.jpg\nbanded/\xe9.jpg\n")
    with pytest.raises(DataError, match=r"test1\.txt: not UTF-8 text"):
        open_split("dtd", data, "test")


def test_inat_image_without_an_annotation_is_named(copy_of: CopyOf) -> None:
    data = copy_of("inat1k")
    file = data / "inat2019/val2019.json"
    content = json.loads(file.read_text())
    lost = content["annotations"].pop()["image_id"]
    file.write_text(json.dumps(content))
    with pytest.raises(DataError, match=rf"val2019\.json: .*KeyError: {lost}"):
        open_split("inat1k", data, "test")


@pytest.mark.parametrize("content", [b'{"apple_pie": ["apple_pie/9', b"[]", b"{}"])
def test_other_json_is_named(content: bytes, copy_of: CopyOf) -> None:
    data = copy_of("food")
    (data / "food-101/meta/test.json").write_bytes(content)
    with pytest.raises(DataError, match=r"test\.json: "):
        open_split("food", data, "test")


def test_empty_list_is_named(copy_of: CopyOf) -> None:
    data = copy_of("pets")
    (data / "oxford-iiit-pet/annotations/test.txt").write_text("\n \n")
    with pytest.raises(DataError, match=r"test\.txt: an empty list"):
        open_split("pets", data, "test")


def test_sizes_of_an_excerpt_are_read_with_a_byte_order_mark(
    small_data: Path, tmp_path: Path
) -> None:
    content = (small_data / SMALL_DATA).read_bytes()
    (tmp_path / SMALL_DATA).write_bytes(codecs.BOM_UTF8 + content)
    assert small_sizes(tmp_path) == small_sizes(small_data)
