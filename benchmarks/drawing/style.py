"""Pictures by matplotlib: sized for a column of print, panels in rows above the caption.

The same picture gives the same bytes on one machine. matplotlib is imported when something is
drawn, with a backend that needs no display.
"""

import io
import textwrap
from typing import TYPE_CHECKING, Any

from benchmarks.drawing.figure import Picture
from benchmarks.drawing.panels import GRAY

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas

COLUMN_IN, PAGE_IN = 3.4, 7.0
"""Widths of a picture with one panel in a row and with several, in inches."""
CAPTION_PT = 6.0
CHARACTERS_PER_INCH = 21
"""Characters of a caption's line, which is a little shorter than the picture is wide."""
SETTINGS: dict[Any, Any] = {
    # names of classes and runs may hold a $, which is no formula
    "text.parse_math": False,
    "font.family": "DejaVu Sans",
    "font.size": 7.5,
    "axes.labelsize": 7.5,
    "axes.titlesize": 7.5,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.labelsize": 6.5,
    "ytick.labelsize": 6.5,
    "legend.fontsize": 6.5,
    "lines.linewidth": 1.2,
    "lines.markersize": 3.6,
    "svg.hashsalt": "ssl-benchmark",
    "svg.fonttype": "path",
    "savefig.dpi": 300,
}


def render(picture: Picture, identifier: str) -> tuple[bytes, bytes]:
    """Return the picture as SVG and as PNG; their metadata hold title, caption and identifier."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    caption = " ".join(picture.caption)
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # a user's own settings must not change the looks
        matplotlib.rcParams.update(SETTINGS)
        canvas = Canvas(layout="constrained")
        FigureCanvasAgg(canvas)
        _draw(canvas, picture)
        svg, png = io.BytesIO(), io.BytesIO()
        # without a date, the same numbers give the same bytes
        about = {"Title": picture.title, "Description": caption}
        nothing = {"Date": None, "Creator": None}
        canvas.savefig(svg, format="svg", metadata={**about, **nothing, "Identifier": identifier})
        canvas.savefig(png, format="png", metadata={**about, "Software": None})
    return svg.getvalue(), png.getvalue()


def _draw(canvas: "Canvas", picture: Picture) -> None:
    """Place the panels in rows above the caption."""
    columns = len(picture.panels) if len(picture.panels) < 4 else 2
    width = COLUMN_IN if columns == 1 else PAGE_IN
    caption = textwrap.fill(" ".join(picture.caption), int(width * CHARACTERS_PER_INCH))
    rows = [picture.panels[i : i + columns] for i in range(0, len(picture.panels), columns)]
    heights = [max(panel.height_in for panel in row) for row in rows]
    caption_in = (caption.count("\n") + 2) * 1.3 * CAPTION_PT / 72
    canvas.set_size_inches(width, sum(heights) + caption_in)
    grid = canvas.subplots(len(rows), columns, squeeze=False, height_ratios=heights)
    for row, places in zip(rows, grid, strict=True):
        for axes in places[len(row) :]:
            axes.set_axis_off()
        for panel, axes in zip(row, places, strict=False):
            panel.draw(axes)
            axes.set_title(panel.title or (picture.title if panel is picture.panels[0] else ""))
    looks = {"fontsize": CAPTION_PT, "color": GRAY, "linespacing": 1.3}
    canvas.supxlabel(caption, x=0.01, ha="left", **looks)
