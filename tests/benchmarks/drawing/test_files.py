"""Files of figures: all three or none, the same bytes again, drawn only when something changed."""

import html
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks.drawing import style
from benchmarks.drawing.figure import Line, Picture, Point
from benchmarks.drawing.files import remove_stale, write_page, write_picture
from benchmarks.drawing.panels import LinePanel
from pretrain.running.atomic_files import WriteError


def picture(y: float = 2.0, caption: str = "Seeds < 3 & two <words>.") -> Picture:
    points = (Point(x=0, y=1), Point(x=1, y=y, spread=0.5, num_runs=3))
    lines = (Line(label="a", points=points), Line(label="b", points=points))
    return Picture(
        file_name="jcl_figure2a",
        title="JCL, Figure 2(a)",
        panels=(LinePanel(x_label="x", y_label="y", lines=lines),),
        caption=(caption,),
        header=("x", "y"),
        rows=(("0", "1"), ("1", f"{y}")),
    )


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Text in place of drawings."""

    def render(picture: Picture, identifier: str) -> tuple[bytes, bytes]:
        caption = html.escape(" ".join(picture.caption))
        entries = {"title": picture.title, "description": caption, "identifier": identifier}
        return "".join(f"<dc:{k}>{v}</dc:{k}>" for k, v in entries.items()).encode(), b"png"

    monkeypatch.setattr(style, "render", render)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_drawing_again_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("first", "second"):
        write_picture(picture(), tmp_path / name)
    assert contents(tmp_path / "first") == contents(tmp_path / "second")


@pytest.mark.usefixtures("quick")
def test_only_what_has_changed_or_is_missing_is_drawn_again(tmp_path: Path) -> None:
    write_picture(picture(), tmp_path)
    assert not write_picture(picture(), tmp_path)
    assert write_picture(picture(y=3.0), tmp_path)
    assert write_picture(picture(y=3.0, caption="Others."), tmp_path)
    (tmp_path / "jcl_figure2a.png").unlink()
    assert write_picture(picture(y=3.0, caption="Others."), tmp_path)
    assert write_picture(picture(caption="long " * 5_000), tmp_path)
    assert not write_picture(picture(caption="long " * 5_000), tmp_path)
    assert len(contents(tmp_path)) == 3


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("suffix", ["svg", "csv"])
def test_a_disk_that_is_full_amid_the_files_is_no_picture_that_is_drawn(
    suffix: str, tmp_path: Path, fill_disk: Callable[[str], None]
) -> None:
    write_picture(picture(), tmp_path)
    fill_disk(f"jcl_figure2a.{suffix}")
    with pytest.raises(WriteError):
        write_picture(picture(y=3.0), tmp_path)
    fill_disk("no file")
    assert write_picture(picture(y=3.0), tmp_path)


@pytest.mark.usefixtures("quick")
def test_only_pictures_of_ours_that_are_not_kept_are_removed(tmp_path: Path) -> None:
    for name in ("jcl_figure2a", "jcl_figure2a.cifar10_knn", "jcl_figure2a.old", "jcl_figure2b"):
        write_picture(replace(picture(), file_name=name), tmp_path)
    others = ("jcl_figure2a.mine.svg", "jcl_figure2a.mine.csv", "curve_a.csv", "jcl_figure2a-b.csv")
    for name in others:
        (tmp_path / name).write_text("of a user")
    write_page(tmp_path, "")
    assert (tmp_path / "README.md").exists()
    remove_stale("jcl_figure2a", {"jcl_figure2a"}, tmp_path)
    ours = {f"jcl_figure2{letter}.{s}" for letter in "ab" for s in ("csv", "png", "svg")}
    assert set(contents(tmp_path)) == {*ours, *others, "README.md"}
    for letter in "ab":
        remove_stale(f"jcl_figure2{letter}", (), tmp_path)
    write_page(tmp_path, "")
    assert set(contents(tmp_path)) == set(others)
