"""Pictures by matplotlib: sized for a column of print, colors that color-blind readers tell apart.

The same picture gives the same bytes on one machine. matplotlib is imported when something is
drawn, with a backend that needs no display.
"""

import io
from typing import TYPE_CHECKING, Any

from benchmarks.drawing.figure import (
    BarPanel,
    GridPanel,
    HistogramPanel,
    LinePanel,
    Panel,
    Picture,
    Point,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

COLORS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
"""Okabe and Ito's palette without its yellow, which is too light on white."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES = ("-", (0, (5, 1.5)), (0, (1.2, 1.2)), (0, (5, 1.2, 1.2, 1.2)))
GRAY = "#595959"
COLUMN_IN, PAGE_IN = 3.4, 7.0
"""Widths of a picture with one panel and with several, in inches."""
PANEL_IN = 2.0
"""Height of a panel's axes."""
LEFT_IN, TOP_IN, AXIS_IN, EDGE_IN = 0.55, 0.28, 0.42, 0.08
"""Room for the y axis, the title, the x axis, and an edge."""
POINT_IN = 1 / 72
CAPTION_PT, LABEL_PT = 6.0, 7.5
CAPTION_LINE_IN = 1.3 * CAPTION_PT * POINT_IN
SETTINGS: dict[str, Any] = {
    "font.family": "DejaVu Sans",
    "font.size": LABEL_PT,
    "axes.labelsize": LABEL_PT,
    "axes.titlesize": LABEL_PT,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "xtick.labelsize": 6.5,
    "ytick.labelsize": 6.5,
    "xtick.major.width": 0.6,
    "ytick.major.width": 0.6,
    "xtick.major.size": 2.5,
    "ytick.major.size": 2.5,
    "xtick.minor.size": 0,
    "lines.linewidth": 1.2,
    "lines.markersize": 3.6,
    "svg.hashsalt": "ssl-benchmark",
    "svg.fonttype": "path",
    "savefig.dpi": 300,
}


def render(picture: Picture, identifier: str) -> tuple[bytes, bytes]:
    """Return the picture as SVG and as PNG; their metadata hold caption and identifier."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    caption = " ".join(picture.caption)
    with matplotlib.rc_context(SETTINGS):
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
    """Place the panels side by side above the caption."""
    panels = picture.panels
    width = COLUMN_IN if len(panels) == 1 else PAGE_IN
    caption = _wrap(" ".join(picture.caption), width - 2 * EDGE_IN)
    caption_in = CAPTION_LINE_IN * (caption.count("\n") + 1)
    heights = [_height(panel, width) for panel in panels]
    bottom = EDGE_IN + caption_in
    total = bottom + AXIS_IN + max(heights) + TOP_IN
    canvas.set_size_inches(width, total)
    each = width / len(panels)
    for place, (panel, height) in enumerate(zip(panels, heights, strict=True)):
        right = EDGE_IN + _label_room(panel)
        left = place * each + LEFT_IN
        axes = canvas.add_axes(
            (
                left / width,
                (bottom + AXIS_IN) / total,
                (each - LEFT_IN - right) / width,
                height / total,
            )
        )
        _draw_panel(axes, panel)
        title = panel.title or (picture.title if place == 0 else "")
        axes.set_title(title, loc="left", x=0.0, fontweight="bold", pad=6)
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
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextToPath

    measure, font = TextToPath(), FontProperties(size=CAPTION_PT)
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".lstrip()
        if (
            measure.get_text_width_height_descent(longer, font, ismath=False)[0] * POINT_IN
            > width_in
        ):
            lines.append(word)
        else:
            lines[-1] = longer
    return "\n".join(lines)


def _height(panel: Panel, width: float) -> float:
    return PANEL_IN


def _label_room(panel: Panel) -> float:
    """Return the width in inches that labels beside the lines need."""
    if not isinstance(panel, LinePanel) or not panel.joined:
        return 0.1
    names = [line.label for line in panel.lines if len(panel.lines) > 1 or panel.levels]
    names += [level.label for level in panel.levels]
    longest = max(map(len, names), default=0)
    return 0.1 + longest * 0.58 * LABEL_PT * POINT_IN


def _draw_panel(axes: "Axes", panel: Panel) -> None:
    match panel:
        case LinePanel():
            _draw_lines(axes, panel)
        case HistogramPanel() | BarPanel() | GridPanel():
            raise NotImplementedError


def _draw_lines(axes: "Axes", panel: LinePanel) -> None:
    labels: list[tuple[float, str, str]] = []
    if panel.log_x:
        axes.set_xscale("log")
    for place, line in enumerate(panel.lines):
        color = COLORS[place % len(COLORS)]
        xs, ys = [p.x for p in line.points], [p.y for p in line.points]
        axes.plot(
            xs,
            ys,
            color=color,
            linestyle=DASHES[place % len(DASHES)] if len(panel.lines) > 1 else "-",
            marker=MARKERS[place % len(MARKERS)] if panel.marked else "",
            zorder=3,
        )
        _draw_spreads(axes, line.points, color)
        labels.append((ys[-1], line.label, color))
    for place, level in enumerate(panel.levels):
        color = GRAY
        axes.axhline(level.point.y, color=color, linewidth=0.8, linestyle=(0, (4 - place, 2)))
        if level.point.spread:
            low, high = level.point.y - level.point.spread, level.point.y + level.point.spread
            axes.axhspan(low, high, color=color, alpha=0.12, linewidth=0)
        labels.append((level.point.y, level.label, color))
    for number in panel.published:
        axes.plot(
            [number.x], [number.y], marker="D", markerfacecolor="white", color=GRAY, linestyle=""
        )
        axes.annotate(
            f"{number.label}: {number.y:g}",
            (number.x or 0.0, number.y),
            xytext=(4, 5),
            textcoords="offset points",
            color=GRAY,
            fontsize=6,
        )
    axes.set_xlabel(panel.x_label.replace("τ_con", r"$\tau_\mathrm{con}$"))
    axes.set_ylabel(panel.y_label)
    axes.margins(x=0.04, y=0.1)
    if panel.log_x:
        _plain_ticks(axes, sorted({p.x for line in panel.lines for p in line.points}))
    if len(labels) > 1:
        _label_ends(axes, labels)


def _draw_spreads(axes: "Axes", points: tuple[Point, ...], color: str) -> None:
    known = [point for point in points if point.spread is not None]
    axes.errorbar(
        [point.x for point in known],
        [point.y for point in known],
        yerr=[point.spread or 0.0 for point in known],
        fmt="none",
        ecolor=color,
        elinewidth=0.8,
        capsize=1.8,
        capthick=0.8,
        zorder=2,
    )


def _plain_ticks(axes: "Axes", values: list[float]) -> None:
    """Mark the values themselves on a logarithmic axis."""
    axes.set_xticks(values, [f"{value:g}" for value in values])
    axes.set_xticks([], minor=True)


def _label_ends(axes: "Axes", labels: list[tuple[float, str, str]]) -> None:
    """Write the labels right of the axes at the heights of their lines, apart from each other."""
    low, high = axes.get_ylim()
    height_pt = PANEL_IN / POINT_IN
    apart = (high - low) * 1.25 * LABEL_PT / height_pt
    ordered = sorted(labels)
    places = [y for y, _, _ in ordered]
    for i in range(1, len(places)):
        places[i] = max(places[i], places[i - 1] + apart)
    top = high + apart / 2
    for i in reversed(range(len(places))):
        places[i] = min(places[i], top)
        top = places[i] - apart
    for place, (_, text, color) in zip(places, ordered, strict=True):
        axes.annotate(
            text,
            (1.0, place),
            xycoords=("axes fraction", "data"),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            color=color,
            annotation_clip=False,
        )
