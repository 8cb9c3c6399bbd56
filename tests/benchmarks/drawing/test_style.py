"""Drawing: every kind of panel, and where texts stand."""

import io
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image

from benchmarks.drawing.figure import (
    BarPanel,
    ExamplePanel,
    GridPanel,
    Histogram,
    HistogramPanel,
    Level,
    Line,
    LinePanel,
    Panel,
    Picture,
    Point,
    PublishedPoint,
    Tile,
)
from benchmarks.drawing.measures import COLUMN_IN
from benchmarks.drawing.panels import _short
from benchmarks.drawing.style import render

POINTS = (Point(x=1, y=1, spread=0.1, num_runs=3), Point(x=2, y=3), Point(x=4, y=2))
TILE = Tile(pixels=np.full((8, 8, 3), 128, dtype=np.uint8), label="a class")
OTHER = Tile(pixels=TILE.pixels, agrees=False)
PANELS: dict[str, Panel] = {
    "lines": LinePanel(
        x_label="τ_con",
        y_label="y",
        lines=(Line(label="a", points=POINTS), Line(label="b", points=POINTS)),
        levels=(Level(label="c", point=POINTS[0]),),
        published=(PublishedPoint(label="paper", x=2, y=2.5),),
        log_x=True,
    ),
    "labelled points": LinePanel(
        x_label="x",
        y_label="y",
        lines=(Line(label="a", points=POINTS, point_labels=("1", "2", "3")),),
    ),
    "curves": LinePanel(
        x_label="x", y_label="y", lines=(Line(label="a", points=POINTS),), marked=False
    ),
    "histograms": HistogramPanel(
        x_label="x",
        histograms=tuple(
            Histogram(label=f"method {i}", edges=(0.0, 0.001, 0.002), counts=(1, i), mean=0.001)
            for i in (1, 2, 3)
        ),
    ),
    "bars": BarPanel(y_label="y", names=("a", "b"), shares=POINTS[:2], highest=3),
    "grid": GridPanel(rows=((TILE, OTHER), (TILE, OTHER))),
    "examples": ExamplePanel(tiles=(TILE, TILE), shares=((0.5, 0.5), (0.1, 0.9))),
}


def picture(*panels: Panel, columns: int = 1) -> Picture:
    return Picture(
        file_name="jcl_figure2a",
        title="JCL, Figure 2(a)",
        panels=panels,
        columns=columns,
        caption=("A caption.",),
        header=("x",),
        rows=(),
    )


def width_in(png: bytes) -> float:
    with Image.open(io.BytesIO(png)) as image:
        return image.width / 300


def test_every_kind_of_panel_fits_a_column(subtests: pytest.Subtests) -> None:
    for kind in PANELS:
        with subtests.test(kind=kind):
            svg, png = render(picture(PANELS[kind]), "id")
            assert svg.startswith(b"<?xml")
            assert width_in(png) == pytest.approx(COLUMN_IN, abs=0.01)


@pytest.mark.parametrize("name", [r"a$\x$", "cost $5 to $6", r"$\frac{$"])
def test_names_are_no_formulas(name: str) -> None:
    tile = Tile(pixels=TILE.pixels, label=name)
    labels = LinePanel(
        x_label="τ_con",
        y_label="y",
        lines=(Line(label=name, points=POINTS), Line(label="b", points=POINTS)),
    )
    bars = BarPanel(title=name, y_label="y", names=(name, "b"), shares=POINTS[:2], highest=3)
    shown = replace(picture(GridPanel(rows=((tile,),)), labels, bars), caption=(name,))
    assert render(shown, "id")[0].startswith(b"<?xml")


def test_long_names_of_classes_become_short_lines() -> None:
    assert _short("frog") == "frog"
    assert _short("American_coot, marsh hen, mud hen, water hen") == "American\ncoot, marsh\nhen,…"
