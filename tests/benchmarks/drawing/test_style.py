"""Drawing: every kind of panel."""

import io

import pytest
from PIL import Image

from benchmarks.drawing.figure import Line, Panel, Picture, Point
from benchmarks.drawing.histograms import Histogram, HistogramPanel
from benchmarks.drawing.panels import BarPanel, LinePanel, PublishedPoint
from benchmarks.drawing.style import COLUMN_IN, PAGE_IN, render

NAME = r"a $\frac{$"
"""Name of a class or a run, which is no formula."""
POINTS = (Point(x=1, y=1, spread=0.1, num_runs=3), Point(x=2, y=3), Point(x=4, y=2))
LINE, SECOND = Line(label=NAME, points=POINTS), Line(label="b", points=POINTS)
PANELS: tuple[Panel, ...] = (
    LinePanel(
        x_label="τ_con",
        y_label="y",
        lines=(LINE, SECOND),
        levels=(Line(label="c", points=POINTS[:1]),),
        published=(PublishedPoint(label="paper", x=2, y=2.5),),
        log_x=True,
    ),
    LinePanel(
        x_label="x",
        y_label="y",
        lines=(Line(label="a", points=POINTS, point_labels=("1", "2", "3")),),
    ),
    HistogramPanel(
        x_label="x",
        histograms=tuple(
            Histogram(label=f"method {i}", edges=(0.0, 0.001, 0.002), counts=(1, i), mean=0.001)
            for i in (1, 2, 3)
        ),
    ),
    BarPanel(title=NAME, y_label="y", names=(NAME, "b"), shares=POINTS[:2]),
)


def width_in(*panels: Panel) -> float:
    picture = Picture(
        file_name="jcl_figure2a",
        title="JCL, Figure 2(a)",
        panels=panels,
        caption=(NAME,),
        header=("x",),
        rows=(),
    )
    svg, png = render(picture, "id")
    assert svg.startswith(b"<?xml")
    with Image.open(io.BytesIO(png)) as image:
        return image.width / 300


def test_every_kind_of_panel_fits_a_column_and_several_a_page() -> None:
    widths = [width_in(panel) for panel in PANELS]
    assert widths == pytest.approx([COLUMN_IN] * len(PANELS), abs=0.01)
    assert width_in(*PANELS) == pytest.approx(PAGE_IN, abs=0.01)
