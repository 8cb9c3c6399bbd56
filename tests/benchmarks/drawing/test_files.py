"""Figures are written completely, reproducibly, and only after changes."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from benchmarks.drawing import panels
from benchmarks.drawing.figure import figures
from benchmarks.drawing.kinds import Picture
from benchmarks.drawing.panels import Lines, Panel, Series
from benchmarks.drawing.selection import Point
from benchmarks.figures import remove_stale, write_page, write_picture
from pretrain.running.atomic_files import WriteError

FIGURE = figures()["jcl/fig2a"]


def picture(y: float = 2.0, finding: str = "Seeds < 3 & two <words>.") -> Picture:
    points = (Point(0, 1), Point(1, y, spread=0.5, num_runs=3))
    return Picture(
        panels=[Lines("x", "y", [Series("a", points), Series("b", points)])],
        runs={},
        header=("x", "y"),
        rows=(("0", "1"), ("1", f"{y}")),
        findings=[finding],
        exact=False,
    )


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Text instead of drawings."""

    def render(panels: Sequence[Panel], title: str, caption: str) -> dict[str, bytes]:
        return {"svg": b"svg", "png": b"png"}

    monkeypatch.setattr(panels, "render", render)


def write(folder: Path, drawn: Picture) -> bool:
    """Write the picture and the page; return whether the picture was drawn."""
    is_new = write_picture(FIGURE, drawn, folder)
    write_page({FIGURE.id: FIGURE.caption(drawn)}, folder, "")
    return is_new


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_drawing_again_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("first", "second"):
        write_picture(FIGURE, picture(), tmp_path / name)
    assert contents(tmp_path / "first") == contents(tmp_path / "second")


@pytest.mark.usefixtures("quick")
def test_only_what_has_changed_or_is_missing_is_drawn_again(tmp_path: Path) -> None:
    assert write(tmp_path, picture())
    assert not write(tmp_path, picture())
    assert write(tmp_path, picture(y=3.0))
    assert write(tmp_path, picture(y=3.0, finding="Others."))
    for name in ("jcl_figure2a.png", "README.md"):
        (tmp_path / name).unlink()
        assert write(tmp_path, picture(y=3.0, finding="Others."))
    assert len(contents(tmp_path)) == 4


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("suffix", ["svg", "csv"])
def test_a_disk_that_is_full_amid_the_files_is_no_picture_that_is_drawn(
    suffix: str, tmp_path: Path, fill_disk: Callable[[str], None]
) -> None:
    write(tmp_path, picture())
    fill_disk(f"jcl_figure2a.{suffix}")
    with pytest.raises(WriteError):
        write_picture(FIGURE, picture(y=3.0), tmp_path)
    fill_disk("no file")
    assert write_picture(FIGURE, picture(y=3.0), tmp_path)


@pytest.mark.usefixtures("quick")
def test_stale_pictures_and_the_empty_page_are_removed(tmp_path: Path) -> None:
    for name in ("jcl/fig2a", "jcl/fig2b"):
        write_picture(figures()[name], picture(), tmp_path)
    write_page({"jcl/fig2a": "A.", "jcl/fig2b": "B."}, tmp_path, "")
    (tmp_path / "curve_a.csv").write_text("of a run")
    remove_stale({"jcl/fig2b"}, tmp_path)
    ours = {f"jcl_figure2b.{suffix}" for suffix in ("csv", "png", "svg")}
    assert set(contents(tmp_path)) == {*ours, "curve_a.csv", "README.md"}
    remove_stale((), tmp_path)
    write_page({}, tmp_path, "")
    assert set(contents(tmp_path)) == {"curve_a.csv"}
