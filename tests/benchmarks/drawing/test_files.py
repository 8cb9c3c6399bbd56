"""Figures are written completely, reproducibly, and only after changes."""

import html
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from benchmarks.drawing import panels
from benchmarks.drawing.figure import figures
from benchmarks.drawing.files import remove_stale, write_page, write_picture
from benchmarks.drawing.kinds import Picture
from benchmarks.drawing.panels import Lines, Panel, Series
from benchmarks.drawing.selection import Point
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

    def render(
        panels: Sequence[Panel], title: str, caption: str, identifier: str
    ) -> dict[str, bytes]:
        entries = {"title": title, "description": html.escape(caption), "identifier": identifier}
        svg = "".join(f"<dc:{name}>{text}</dc:{name}>" for name, text in entries.items())
        return {"svg": svg.encode(), "png": b"png"}

    monkeypatch.setattr(panels, "render", render)


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_drawing_again_gives_the_same_bytes(tmp_path: Path) -> None:
    for name in ("first", "second"):
        write_picture(FIGURE, picture(), tmp_path / name)
    assert contents(tmp_path / "first") == contents(tmp_path / "second")


@pytest.mark.usefixtures("quick")
def test_only_what_has_changed_or_is_missing_is_drawn_again(tmp_path: Path) -> None:
    write_picture(FIGURE, picture(), tmp_path)
    assert not write_picture(FIGURE, picture(), tmp_path)
    assert write_picture(FIGURE, picture(y=3.0), tmp_path)
    assert write_picture(FIGURE, picture(y=3.0, finding="Others."), tmp_path)
    (tmp_path / "jcl_figure2a.png").unlink()
    assert write_picture(FIGURE, picture(y=3.0, finding="Others."), tmp_path)
    assert write_picture(FIGURE, picture(finding="long " * 5_000), tmp_path)
    assert not write_picture(FIGURE, picture(finding="long " * 5_000), tmp_path)
    assert len(contents(tmp_path)) == 3


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("suffix", ["svg", "csv"])
def test_a_disk_that_is_full_amid_the_files_is_no_picture_that_is_drawn(
    suffix: str, tmp_path: Path, fill_disk: Callable[[str], None]
) -> None:
    write_picture(FIGURE, picture(), tmp_path)
    fill_disk(f"jcl_figure2a.{suffix}")
    with pytest.raises(WriteError):
        write_picture(FIGURE, picture(y=3.0), tmp_path)
    fill_disk("no file")
    assert write_picture(FIGURE, picture(y=3.0), tmp_path)


@pytest.mark.usefixtures("quick")
def test_only_pictures_of_ours_that_are_not_kept_are_removed(tmp_path: Path) -> None:
    for figure in ("jcl/fig2a", "jcl/fig2b"):
        write_picture(figures()[figure], picture(), tmp_path)
    # an earlier version drew several pictures of a figure
    for path in list(tmp_path.glob("jcl_figure2a.*")):
        (tmp_path / f"jcl_figure2a.old{path.suffix}").write_bytes(path.read_bytes())
    remaining = (
        "jcl_figure2a.mine.svg",
        "jcl_figure2a.mine.csv",
        "curve_a.csv",
        "jcl_figure2a-b.svg",
    )
    for name in remaining[:3]:
        (tmp_path / name).write_text("of a user")
    (tmp_path / remaining[3]).write_bytes((tmp_path / "jcl_figure2a.svg").read_bytes())
    write_page(tmp_path, "")
    assert (tmp_path / "README.md").exists()
    remove_stale({"jcl_figure2a", "jcl_figure2b"}, tmp_path)
    ours = {f"jcl_figure2{letter}.{s}" for letter in "ab" for s in ("csv", "png", "svg")}
    assert set(contents(tmp_path)) == {*ours, *remaining, "README.md"}
    remove_stale((), tmp_path)
    (tmp_path / remaining[3]).unlink()
    write_page(tmp_path, "")
    assert set(contents(tmp_path)) == set(remaining[:3])
