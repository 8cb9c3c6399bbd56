"""The figures command, and figures at the end of other commands."""

from pathlib import Path

import pytest

from benchmarks.drawing.figure import figures
from benchmarks.drawing.kinds import KINDS
from benchmarks.figures import list_lines, main
from benchmarks.results.records import read_results
from benchmarks.results.tables import csv_text, escape
from benchmarks.tables import update_tables
from tests.benchmarks.drawing.figure_records import drawn, jcl_keys, point

RESULTS = Path(__file__).parents[2] / "results" / "reference"


def test_the_committed_figures_are_those_of_the_committed_records() -> None:
    folder = RESULTS / "figures"
    page = (folder / "README.md").read_text()
    pictures = {name: picture for name in figures() if (picture := drawn(RESULTS, name)[0])}
    assert len(pictures) == 6
    for name, picture in pictures.items():
        figure = figures()[name]
        numbers = (folder / f"{figure.file_name}.csv").read_text()
        assert numbers == csv_text(picture.header, picture.rows)
        assert escape(figure.caption(picture)) in page


def test_the_list_names_the_missing_recipes_and_tasks(tmp_path: Path) -> None:
    jcl_keys(tmp_path, {1: 75.0, 5: 80.0})
    text = "\n".join(list_lines(tmp_path, read_results(tmp_path)))
    assert f"can be drawn: {tmp_path / 'figures' / 'jcl_figure2a.png'}" in text
    assert "co2/in100-r18: in100_linear" in text
    assert "jcl/in100-r18-keys2: in100_linear" in text
    assert "jcl/in100-r18-keys1:" not in text
    assert list(tmp_path.iterdir()) == [tmp_path / "records"]


def test_another_task_or_a_single_head_is_not_what_a_figure_lacks(tmp_path: Path) -> None:
    for recipe, changes in (
        ("lorac/in100-r18", {"task": "in100_view_statistics", "protocol": "lorac-2021/1"}),
        ("loocpp/in100-r50-color-rotation-texture", {"protocol": "looc-2020/1"}),
    ):
        point(tmp_path, recipe, 70.0, {}, **changes)
    text = "\n".join(list_lines(tmp_path, read_results(tmp_path)))
    assert "    lorac/in100-r18: in100_linear@lorac\n" in text
    assert "    loocpp/in100-r50-color-rotation-texture: in100_linear@looc\n" in text
    assert "    lorac/in100-r18: in100_view_statistics\n" not in text


def test_pictures_without_records_are_removed(
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


def test_a_figure_that_cannot_be_drawn_leaves_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **arguments: object) -> None:
        raise TypeError("no number")

    monkeypatch.setitem(KINDS, "snapshot_curves", fail)
    monkeypatch.setattr("benchmarks.drawing.panels.render", lambda *_: {"svg": b"", "png": b""})
    jcl_keys(tmp_path, {1: 75.0, 5: 80.0})
    assert main(["--results", str(tmp_path)]) == 0
    assert "UniCLR, Figure 2(a): cannot be drawn: TypeError: no number" in capsys.readouterr().err
    assert (tmp_path / "figures" / "jcl_figure2a.svg").exists()
    assert not (tmp_path / "figures" / "uniclr_figure2a.svg").exists()


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (ValueError("bad panel"), "JCL, Figure 2(a): bad panel"),  # the other figures are drawn
        (ImportError("no matplotlib"), "the figures are not up to date"),
    ],
)
def test_run_continues_without_a_figure_that_cannot_be_rendered(
    error: Exception,
    sentence: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object) -> None:
        raise error

    monkeypatch.setattr("benchmarks.drawing.panels.render", fail)
    jcl_keys(tmp_path, {1: 75.0, 5: 80.0})
    assert update_tables(tmp_path)
    assert sentence in capsys.readouterr().err
    assert (tmp_path / "tables" / "overview.md").exists()
    assert not (tmp_path / "figures" / "jcl_figure2a.csv").exists()
