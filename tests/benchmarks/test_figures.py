"""The command that draws figures, and figures at the end of other commands."""

import copy
from pathlib import Path

import pytest

from benchmarks.drawing import FIGURES
from benchmarks.drawing.figure import Picture
from benchmarks.figures import list_lines, main, read_material
from benchmarks.results.tables import csv_text, escape
from benchmarks.tables import update_tables
from tests.benchmarks.drawing.figure_records import jcl_keys, point

RESULTS = Path(__file__).parents[2] / "results"


def test_the_committed_figures_are_those_of_the_committed_records() -> None:
    material, folder = read_material(RESULTS), RESULTS / "figures"
    page = (folder / "README.md").read_text()
    pictures = [own for figure in FIGURES.values() for own in figure.draw(material).pictures]
    assert len(pictures) == 6
    for picture in pictures:
        assert (folder / f"{picture.file_name}.csv").read_text() == csv_text(
            picture.header, picture.rows
        )
        assert escape(" ".join(picture.caption)) in page


def test_the_list_names_the_missing_recipes_and_tasks(tmp_path: Path) -> None:
    jcl_keys(tmp_path, {1: 75.0, 5: 80.0})
    text = "\n".join(list_lines(tmp_path, read_material(tmp_path)))
    assert f"can be drawn: {tmp_path / 'figures' / 'jcl_figure2a.png'}" in text
    assert "co2/in100-r18: in100_linear" in text
    assert "jcl/in100-r18-keys2: in100_linear" in text
    assert "jcl/in100-r18-keys1:" not in text
    assert list(tmp_path.iterdir()) == [tmp_path / "records"]


def test_what_is_new_is_drawn_at_the_end_of_tables_and_pictures_without_records_are_removed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    jcl_keys(tmp_path, {1: 75.0, 5: 80.0})
    for expected in (True, False):
        assert update_tables(tmp_path)
        assert ("figures  " in capsys.readouterr().out) is expected
    curve = tmp_path / "figures" / "curve_mine.csv"
    curve.write_text("epoch,top1\n")
    for path in tmp_path.glob("records/*keys1/*.json"):
        path.unlink()
    assert main(["--results", str(tmp_path)]) == 0
    assert list((tmp_path / "figures").iterdir()) == [curve]


@pytest.mark.parametrize("where", ["draw", "render"])
def test_a_figure_that_cannot_be_drawn_leaves_the_others(
    where: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise TypeError("no number")

    def render(picture: Picture, identifier: str) -> tuple[bytes, bytes]:
        if where == "render" and picture.file_name == "jcl_figure2a":
            fail()
        return b"svg", b"png"

    monkeypatch.setattr("benchmarks.drawing.style.render", render)
    if where == "draw":
        broken = copy.copy(FIGURES["jcl/fig2a"])
        object.__setattr__(broken, "draw", fail)  # of this figure alone
        monkeypatch.setitem(FIGURES, "jcl/fig2a", broken)
    jcl_keys(tmp_path, {1: 75.0, 5: 80.0})
    for recipe in ("", "-weight1"):
        value = {"config.consistency_weight": len(recipe)}
        point(tmp_path, f"co2/in100-r18{recipe}", 70.0, value, protocol="co2-2021/1")
    assert main(["--results", str(tmp_path)]) == 0
    assert "cannot be drawn: TypeError: no number" in capsys.readouterr().err
    assert (tmp_path / "figures" / "co2_figure2a.svg").exists()
    assert not (tmp_path / "figures" / "jcl_figure2a.svg").exists()
