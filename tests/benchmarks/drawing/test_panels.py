"""Drawing: every kind of panel."""

import io

import pytest
from PIL import Image

from benchmarks.drawing.panels import (
    COLUMN_IN,
    PAGE_IN,
    Bars,
    Histogram,
    Histograms,
    Lines,
    Panel,
    PublishedPoint,
    Series,
    render,
)
from benchmarks.drawing.selection import Point

NAME = r"a $\frac{$"
"""Name of a class or a run, which is no formula."""
POINTS = (Point(1, 1, spread=0.1, num_runs=3), Point(2, 3), Point(4, 2))
PANELS: tuple[Panel, ...] = (
    Lines(
        "τ_con",
        "y",
        [Series(NAME, POINTS), Series("b", POINTS)],
        levels=[Series("c", POINTS[:1])],
        published=[PublishedPoint("paper", 2, 2.5)],
        log_x=True,
    ),
    Lines("x", "y", [Series("a", POINTS, ("1", "2", "3"))]),
    Histograms(
        "x", [Histogram(f"method {i}", (0.0, 0.001, 0.002), (1, i), 0.001) for i in (1, 2, 3)]
    ),
    Bars("y", (NAME, "b"), POINTS[:2], title=NAME),
)


def width_in(*panels: Panel) -> float:
    files = render(panels, "JCL, Figure 2(a)", NAME)
    assert files["svg"].startswith(b"<?xml")
    with Image.open(io.BytesIO(files["png"])) as image:
        return image.width / 300


def test_every_kind_of_panel_fits_a_column_and_several_a_page() -> None:
    widths = [width_in(panel) for panel in PANELS]
    assert widths == pytest.approx([COLUMN_IN] * len(PANELS), abs=0.01)
    assert width_in(*PANELS[1:]) == pytest.approx(PAGE_IN, abs=0.01)
