"""Pictures by matplotlib: sized for a column of print, colors that color-blind readers tell apart.

The same picture gives the same bytes on one machine. matplotlib is imported when something is
drawn, with a backend that needs no display.
"""

import io
from typing import TYPE_CHECKING

from benchmarks.drawing.figure import BarPanel, ExamplePanel, GridPanel, Panel, Picture
from benchmarks.drawing.panels import (
    AXIS_IN,
    CAPTION_LINE_IN,
    CAPTION_PT,
    COLUMN_IN,
    EDGE_IN,
    GAP,
    GRAY,
    LEFT_IN,
    PAGE_IN,
    PANEL_IN,
    SETTINGS,
    TOP_IN,
    draw_panel,
    label_room,
    text_width_in,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure as Canvas


def render(picture: Picture, identifier: str) -> tuple[bytes, bytes]:
    """Return the picture as SVG and as PNG; their metadata hold caption and identifier."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    caption = " ".join(picture.caption)
    with matplotlib.rc_context():
        matplotlib.rcdefaults()  # a user's own settings must not change the looks
        matplotlib.rcParams.update(SETTINGS)
        canvas = Canvas()
        FigureCanvasAgg(canvas)
        _draw(canvas, picture)
        svg, png = io.BytesIO(), io.BytesIO()
        # without a date, the same numbers give the same bytes
        about = {"Title": picture.title, "Description": caption, "Identifier": identifier}
        canvas.savefig(svg, format="svg", metadata={**about, "Date": None, "Creator": None})
        about = {"Title": picture.title, "Description": caption, "Comment": identifier}
        canvas.savefig(png, format="png", metadata={**about, "Software": None})
    return svg.getvalue(), png.getvalue()


def _draw(canvas: "Canvas", picture: Picture) -> None:
    """Place the panels in rows above the caption."""
    columns = picture.columns
    width = COLUMN_IN if columns == 1 else PAGE_IN
    caption = _wrap(" ".join(picture.caption), width - 2 * EDGE_IN)
    caption_in = CAPTION_LINE_IN * (caption.count("\n") + 1)
    starts = range(0, len(picture.panels), columns)
    rows = [picture.panels[start : start + columns] for start in starts]
    heights = [max(_height(panel, width / columns) for panel in row) for row in rows]
    below = [max(map(_axis_room, row)) for row in rows]
    total = 2 * EDGE_IN + caption_in + sum(heights) + sum(below) + TOP_IN * len(rows)
    canvas.set_size_inches(width, total)
    top = total
    for row, height, room in zip(rows, heights, below, strict=True):
        top -= TOP_IN + height
        for place, panel in enumerate(row):
            left = place * width / columns + LEFT_IN
            across = width / columns - LEFT_IN - EDGE_IN - label_room(panel)
            own = _height(panel, width / columns)
            box = (left, top + height - own, across, own)
            sides = (width, total, width, total)
            rectangle = [inches / side for inches, side in zip(box, sides, strict=True)]
            axes = canvas.add_axes((rectangle[0], rectangle[1], rectangle[2], rectangle[3]))
            draw_panel(axes, panel)
            title = panel.title or (picture.title if panel is picture.panels[0] else "")
            axes.set_title(title, loc="left", x=0.0, fontweight="bold", pad=6)
        top -= room
    canvas.text(
        EDGE_IN / width,
        (EDGE_IN + caption_in) / total,
        caption,
        fontsize=CAPTION_PT,
        color=GRAY,
        va="top",
        linespacing=1.3,
    )


def _wrap(text: str, width_in: float) -> str:
    """Return the text in lines of at most this width."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".lstrip()
        if text_width_in(longer, CAPTION_PT) > width_in:
            lines.append(word)
        else:
            lines[-1] = longer
    return "\n".join(lines)


def _height(panel: Panel, width_in: float) -> float:
    """Return the height in inches of the axes of a panel that is so wide with all its texts."""
    if isinstance(panel, GridPanel):
        columns = max(len(row) for row in panel.rows)
        across = width_in - LEFT_IN - EDGE_IN - label_room(panel)
        return across / (columns + GAP) * len(panel.rows)
    return PANEL_IN


def _axis_room(panel: Panel) -> float:
    """Return the height in inches below a panel's axes."""
    match panel:
        case GridPanel():
            return 0.05
        case BarPanel() | ExamplePanel():
            return 0.26
        case _:
            return AXIS_IN
