"""Generated datasets are reproducible, marked, and never overwrite real data."""

import errno
import hashlib
from pathlib import Path

import pytest

from transfer.datasets.catalog import DATASETS, open_split
from transfer.datasets.check import check
from transfer.datasets.expected import DataError, Sizes, mark_small, small_sizes
from transfer.datasets.synthetic.generate import POOL_FILES, generate

LAYOUTS = {
    "CUB_200_2011": "eb741d48db18",
    "SUN397": "d30434b4e6bc",
    "VOCdevkit": "8a24d9f4f88b",
    "birdsnap": "b2e70f5fc443",
    "caltech101": "529221075023",
    "cifar-10-batches-py": "769231f14e06",
    "cifar-100-python": "44cda988a81c",
    "coco": "fb795c71c7e8",
    "dtd": "41cea5c653d5",
    "fgvc-aircraft-2013b": "41bd2369d505",
    "flowers-102": "49b6ae7f99f0",
    "food-101": "405e76d6f131",
    "imagenet": "c69d3d3b9917",
    "imagenet-c": "f5c1d916ccfe",
    "imagenet_subsets": "7fb25edb6415",
    "inat2019": "afeb650b35a2",
    "objectnet-1.0": "940615f21ecb",
    "oxford-iiit-pet": "ba750f82a077",
    "places365": "65428dee847a",
    "pretrain": "1b88e476fedf",
    "stanford_cars": "07fe854bb19f",
}
"""Return a hash of each generated folder: file names, lists and annotations."""


def test_generated_layouts_are_those_of_before(small_data: Path) -> None:
    result = {}
    for folder in filter(Path.is_dir, small_data.iterdir()):
        digest = hashlib.sha256()
        for file in sorted(path for path in folder.rglob("*") if path.is_file()):
            digest.update(file.relative_to(folder).as_posix().encode() + b"\0")
            # the bytes of pictures depend on Pillow, those of MATLAB files on the date
            if file.suffix in (".txt", ".json", ".xml"):
                digest.update(file.read_bytes())
        result[folder.name] = digest.hexdigest()[:12]
    assert result == LAYOUTS


def test_equal_seeds_give_equal_files_and_others_do_not(small_data: Path, tmp_path: Path) -> None:
    generate(tmp_path / "same", keys=["pets"])
    generate(tmp_path / "other", keys=["pets"], seed=1)
    same, second = (open_split("pets", tmp_path / name, "test") for name in ("same", "other"))
    expected = open_split("pets", small_data, "test")
    assert same.fingerprint == expected.fingerprint
    assert second.fingerprint != expected.fingerprint


def test_the_pool_holds_no_test_image(small_data: Path) -> None:
    assert set(small_sizes(small_data)) == set(DATASETS)
    pool = [file.read_bytes() for file in (small_data / "pretrain").iterdir()]
    assert len(set(pool)) == len(POOL_FILES)
    for key in ("pets", "dtd", "in1k"):
        images = open_split(key, small_data, "test")
        tested = {(small_data / images.name(i)).read_bytes() for i in range(len(images))}
        assert tested.isdisjoint(pool)


def test_only_copies_are_replaced(tmp_path: Path) -> None:
    generate(tmp_path, keys=["cifar10"])
    generate(tmp_path, keys=["cifar10"])
    foreign = tmp_path / "dtd" / "dtd" / "images" / "mine.jpg", tmp_path / "pretrain" / "00000.jpg"
    for file in foreign:
        file.parent.mkdir(parents=True)
        file.write_bytes(b"precious")
    for key in ("dtd", "dtd", "pretrain"):
        with pytest.raises(DataError, match="was not generated"):
            generate(tmp_path, keys=[key])
        mark_small(tmp_path, "dtd", Sizes(classes=2, counts={"test": 4}))
    assert [file.read_bytes() for file in foreign] == [b"precious"] * 2


def test_a_set_is_written_with_the_one_that_it_needs(tmp_path: Path) -> None:
    generate(tmp_path, keys=["coco17_keypoints"])
    assert set(small_sizes(tmp_path)) == {"coco17", "coco17_keypoints"}


def test_a_full_disk_leaves_no_half_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    remaining = iter(range(49))

    def write_until_full(file: Path, content: bytes) -> int:
        if next(remaining, None) is None:
            raise OSError(errno.ENOSPC, "No space left on device")
        with file.open("wb") as out:
            return out.write(content)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", write_until_full)
        with pytest.raises(OSError, match="No space left"):
            generate(tmp_path, keys=["dtd"])
    assert not list(tmp_path.iterdir())
    generate(tmp_path, keys=["dtd"])
    assert check("dtd", tmp_path, decode=True).ok
