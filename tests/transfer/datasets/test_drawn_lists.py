"""A drawn list is the same wherever the data lie, and is written once."""

from collections.abc import Callable
from pathlib import Path

from transfer.datasets.catalog import open_split
from transfer.datasets.splits import write_list


def store_list(data: Path, folder: Path) -> dict[str, str]:
    parts = {part: open_split("inat1k", data, part) for part in ("trainval", "test")}
    return write_list(folder, "inat1k-resplit0", parts)


def test_the_list_has_every_image_once_with_its_split(small_data: Path, tmp_path: Path) -> None:
    stored = store_list(small_data, tmp_path / "lists")
    lines = [
        line.split(" ") for line in (tmp_path / "lists" / stored["file"]).read_text().split("\n")
    ]
    test = open_split("inat1k", small_data, "test")
    assert [name for part, *name in lines if part == "test"] == sorted(
        [test.name(i)] for i in range(len(test))
    )
    assert sum(line[0] == "trainval" for line in lines) + len(test) == len(lines) - 1
    assert [file.name for file in (tmp_path / "lists").iterdir()] == [stored["file"]]


def test_a_moved_set_has_the_same_list_and_leaves_the_first_alone(
    small_data: Path, tmp_path: Path, copy_of: Callable[[str], Path]
) -> None:
    first = store_list(small_data, tmp_path / "lists")
    file = tmp_path / "lists" / first["file"]
    before = file.stat().st_mtime_ns
    assert store_list(copy_of("inat1k"), tmp_path / "lists") == first
    assert file.stat().st_mtime_ns == before


def test_another_draw_has_another_list(small_data: Path, tmp_path: Path) -> None:
    part = open_split("inat1k", small_data, "test")
    first = write_list(tmp_path, "draw", {"test": part})
    assert write_list(tmp_path, "draw", {"test": part.subset(range(5))}) != first
    assert len(list(tmp_path.iterdir())) == 2
