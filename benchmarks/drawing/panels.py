"""Panels by matplotlib on given axes, and the measures of print: sizes, colors, room for texts."""

import math
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from benchmarks.drawing.figure import (
    BarPanel,
    ExamplePanel,
    GridPanel,
    Histogram,
    HistogramPanel,
    Line,
    LinePanel,
    Panel,
    Point,
    Tile,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes


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
GAP = 0.25
"""Gap between a query and its neighbors, as a share of an image's side."""
POINT_IN = 1 / 72
CAPTION_PT, LABEL_PT = 6.0, 7.5
CAPTION_LINE_IN = 1.3 * CAPTION_PT * POINT_IN
LABEL_CHARACTERS = 11
"""Characters of a line that fit left of an image."""
MOST_BINS = 48
"""Bins of a histogram that are drawn; records hold more."""
SMALL_EXPONENT = -3
"""Numbers of this order or below are shown as multiples of a power of ten."""
SETTINGS: dict[Any, Any] = {
    # names of classes and runs may hold a $, which is no formula
    "text.parse_math": False,
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


def text_width_in(text: str, size_pt: float) -> float:
    """Return the width of a line of text in inches."""
    from matplotlib.font_manager import FontProperties
    from matplotlib.textpath import TextToPath

    font = FontProperties(size=size_pt)
    width_pt: float = TextToPath().get_text_width_height_descent(text, font, ismath=False)[0]
    return width_pt * POINT_IN


def apart(places: Sequence[float], sizes: Sequence[float], low: float, high: float) -> list[float]:
    """Return the centers of labels, in order, moved as little as keeps them from overlapping."""
    moved = list(places)
    edge = low
    for i, size in enumerate(sizes):
        moved[i] = max(moved[i], edge + size / 2)
        edge = moved[i] + size / 2
    edge = high
    for i in reversed(range(len(moved))):
        moved[i] = min(moved[i], edge - sizes[i] / 2)
        edge = moved[i] - sizes[i] / 2
    return moved


def label_room(panel: Panel) -> float:
    """Return the width in inches that labels beside the lines need."""
    if not isinstance(panel, LinePanel):
        return 0.1
    single = len(panel.lines) + len(panel.levels) == 1
    names = [line.label for line in panel.lines if not (single or line.point_labels)]
    names += [level.label for level in panel.levels]
    return 0.1 + max((text_width_in(name, LABEL_PT) for name in names), default=0.0)


def draw_panel(axes: "Axes", panel: Panel) -> None:
    """Draw one panel, without its title."""
    match panel:
        case LinePanel():
            _draw_lines(axes, panel)
        case HistogramPanel():
            _draw_histograms(axes, panel)
        case BarPanel():
            _draw_bars(axes, panel)
        case GridPanel():
            _draw_grid(axes, panel)
        case ExamplePanel():
            _draw_examples(axes, panel)


def _write(
    axes: "Axes",
    text: str,
    place: tuple[float, float],
    offset_pt: tuple[float, float],
    **looks: Any,
) -> None:
    """Write a text at an offset from a place of the axes."""
    axes.annotate(text, place, xytext=offset_pt, textcoords="offset points", **looks)


def _draw_lines(axes: "Axes", panel: LinePanel) -> None:
    labels: list[tuple[float, str, str]] = []
    if panel.log_x:
        axes.set_xscale("log")
    for place, line in enumerate(panel.lines):
        color = COLORS[place % len(COLORS)]
        style = DASHES[place % len(DASHES)] if len(panel.lines) > 1 else "-"
        marker = MARKERS[place % len(MARKERS)] if panel.marked else ""
        xs, ys = [p.x for p in line.points], [p.y for p in line.points]
        axes.plot(xs, ys, color=color, linestyle=style, marker=marker, zorder=3)
        _draw_spreads(axes, line.points, color, as_bars=panel.marked)
        if line.point_labels:
            _label_points(axes, line, color)
        else:
            labels.append((ys[-1], line.label, color))
    for place, level in enumerate(panel.levels):
        y, spread = level.points[0].y, level.points[0].spread
        axes.axhline(y, color=GRAY, linewidth=0.8, linestyle=(0, (4 - place, 2)))
        if spread:
            axes.axhspan(y - spread, y + spread, color=GRAY, alpha=0.12, linewidth=0)
        labels.append((y, level.label, GRAY))
    for number in panel.published:
        x, y = number.x, number.y
        axes.plot([x], [y], marker="D", markerfacecolor="white", color=GRAY, linestyle="")
        _write(axes, f"{number.label}: {y:g}", (x, y), (4, 5), color=GRAY, fontsize=6)
    axes.set_xlabel(panel.x_label.replace("τ_con", r"$\tau_\mathrm{con}$"), parse_math=True)
    axes.set_ylabel(panel.y_label)
    axes.margins(x=0.1 if any(line.point_labels for line in panel.lines) else 0.04, y=0.1)
    if panel.log_x:  # the values themselves are marked
        values = sorted({p.x for line in panel.lines for p in line.points})
        axes.set_xticks(values, [f"{value:g}" for value in values])
        axes.set_xticks([], minor=True)
    if len(labels) > 1:
        _label_ends(axes, labels)


def _draw_spreads(axes: "Axes", points: tuple[Point, ...], color: str, *, as_bars: bool) -> None:
    """Draw the standard deviations as a bar at each point, or as one band."""
    known = [(p.x, p.y, p.spread) for p in points if p.spread is not None]
    xs, ys, spreads = zip(*known, strict=True) if known else ((), (), ())
    if as_bars:
        axes.errorbar(
            xs,
            ys,
            spreads,
            fmt="none",
            ecolor=color,
            elinewidth=0.8,
            capsize=1.8,
            capthick=0.8,
            zorder=2,
        )
    else:
        low, high = ([y + sign * s for _, y, s in known] for sign in (-1, 1))
        axes.fill_between(xs, low, high, color=color, alpha=0.18, linewidth=0)


def _label_points(axes: "Axes", line: Line, color: str) -> None:
    """Write the labels above the points, on a white rim that lines do not cross."""
    from matplotlib.patheffects import withStroke

    looks = {"path_effects": [withStroke(linewidth=2, foreground="white")], "zorder": 4}
    for point, text in zip(line.points, line.point_labels, strict=True):
        place = (point.x, point.y)
        _write(axes, text, place, (0, 5), ha="center", color=color, fontsize=6.5, **looks)


def _label_ends(axes: "Axes", labels: list[tuple[float, str, str]]) -> None:
    """Write the labels right of the axes at the heights of their lines, apart from each other."""
    low, high = axes.get_ylim()
    size = (high - low) * 1.25 * LABEL_PT * POINT_IN / PANEL_IN
    ordered = sorted(labels)
    places = apart([y for y, _, _ in ordered], [size] * len(ordered), low, high + size / 2)
    looks = {"xycoords": ("axes fraction", "data"), "va": "center", "annotation_clip": False}
    for place, (_, text, color) in zip(places, ordered, strict=True):
        _write(axes, text, (1.0, place), (4, 0), color=color, **looks)


def _draw_histograms(axes: "Axes", panel: HistogramPanel) -> None:
    """Draw each histogram in percent of its images, and its mean as a dotted line."""
    from matplotlib.ticker import MaxNLocator

    bins = [_coarser(each, panel.histograms) for each in panel.histograms]
    for place, (each, (edges, shares)) in enumerate(zip(panel.histograms, bins, strict=True)):
        color = COLORS[place % len(COLORS)]
        axes.stairs(shares, edges, color=color, fill=True, alpha=0.15, linewidth=0)
        axes.stairs(shares, edges, color=color, linewidth=1.1)
        axes.axvline(each.mean, ymax=0.9, color=color, linewidth=0.8, linestyle=(0, (1, 1.5)))
    axes.margins(x=0.02)
    # room for the labels of the means above all bars; the dotted lines end below them
    axes.set_ylim(0, max(max(shares) for _, shares in bins) * 1.2)
    exponent = math.floor(math.log10(max(abs(edge) for edges, _ in bins for edge in edges)))
    scale = 10.0**exponent if exponent <= SMALL_EXPONENT else 1.0
    power = f" (in $10^{{{exponent}}}$)" if scale < 1 else ""
    axes.set_xlabel(panel.x_label + power, parse_math=True)
    axes.set_ylabel("images (%)")
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value / scale:g}")
    _label_means(axes, panel)


def _coarser(
    histogram: Histogram, together: Sequence[Histogram]
) -> tuple[list[float], list[float]]:
    """Return edges and shares in percent of a histogram, over the range that all of them use.

    Neighboring bins are joined until MOST_BINS are left.
    """
    # the range of all, not of this one: equal bins make the heights comparable
    used = [place for each in together for place, count in enumerate(each.counts) if count]
    first, last = min(used), max(used) + 1
    joined = -(-(last - first) // MOST_BINS)
    starts = range(first, last, joined)
    total = sum(histogram.counts)
    shares = [100 * sum(histogram.counts[i : i + joined]) / total for i in starts]
    end = min(starts[-1] + joined, len(histogram.counts))
    return [*(histogram.edges[i] for i in starts), histogram.edges[end]], shares


def _label_means(axes: "Axes", panel: HistogramPanel) -> None:
    """Write each label above its mean, apart from each other."""
    low, high = axes.get_xlim()
    width_in = COLUMN_IN - LEFT_IN - EDGE_IN - label_room(panel)
    colors = {each.label: COLORS[i % len(COLORS)] for i, each in enumerate(panel.histograms)}
    ordered = sorted(panel.histograms, key=lambda each: each.mean)
    sizes = [text_width_in(each.label, LABEL_PT) + 0.08 for each in ordered]
    places = [(each.mean - low) / (high - low) * width_in for each in ordered]
    for each, place in zip(ordered, apart(places, sizes, 0.0, width_in), strict=True):
        top, color = (place / width_in, 1.0), colors[each.label]
        axes.annotate(each.label, top, xycoords="axes fraction", ha="center", va="top", color=color)


def _draw_bars(axes: "Axes", panel: BarPanel) -> None:
    """Draw a bar per name with its share in percent above it."""
    places = list(range(len(panel.names)))
    heights, spreads = [100 * one.y for one in panel.shares], [one.spread for one in panel.shares]
    colors = [COLORS[place % len(COLORS)] for place in places]
    looks = {"elinewidth": 0.8, "capsize": 1.8 if spreads[0] else 0}
    errors = [100 * (spread or 0.0) for spread in spreads]
    axes.bar(places, heights, width=0.65, color=colors, yerr=errors, error_kw=looks)
    for place, height in zip(places, heights, strict=True):
        _write(axes, f"{height:.0f}", (place, height), (0, 2), ha="center")
    axes.set_xticks(places, panel.names)
    axes.tick_params(axis="x", length=0)
    axes.set_ylabel(f"{panel.y_label} (%)")
    axes.set_ylim(0, 115 * panel.highest)


def _draw_grid(axes: "Axes", panel: GridPanel) -> None:
    """Draw rows of images; a frame marks those of another class than the query."""
    for y, row in enumerate(panel.rows):
        for x, tile in enumerate(row):
            _draw_tile(axes, tile, x + GAP * (x > 0), y)
    axes.set_xlim(0, max(len(row) for row in panel.rows) + GAP)
    axes.set_ylim(len(panel.rows), 0)
    axes.set_axis_off()


def _draw_tile(axes: "Axes", tile: Tile, x: float, y: float) -> None:
    """Draw an image of side 0.92 in a square of side 1, its label left of the axes."""
    from matplotlib.patches import Rectangle

    axes.imshow(tile.pixels, extent=(x + 0.04, x + 0.96, y + 0.96, y + 0.04), aspect="auto")
    if tile.agrees is False:
        corner = (x + 0.04, y + 0.04)
        frame = Rectangle(corner, 0.92, 0.92, fill=False, color=COLORS[1], linewidth=1.4)
        axes.add_patch(frame)
    if tile.label:
        place = (0.0, y + 0.5)
        _write(axes, _short(tile.label), place, (-3, 0), ha="right", va="center", fontsize=6)


def _short(label: str) -> str:
    """Return the name of a class in at most three short lines."""
    *lines, last = textwrap.wrap(label.replace("_", " "), LABEL_CHARACTERS, max_lines=3) or [""]
    return "\n".join([*lines, last.replace(" [...]", "…")])


def _draw_examples(axes: "Axes", panel: ExamplePanel) -> None:
    """Draw images below each other, right of each a bar that its shares divide."""
    rows = max(len(panel.tiles), 1)
    end = rows * axes.bbox.width / axes.bbox.height  # units are squares
    for y, (tile, shares) in enumerate(zip(panel.tiles, panel.shares, strict=True)):
        _draw_tile(axes, tile, 0.0, y)
        left = 1 + GAP
        for place, share in enumerate(shares):
            width = share * (end - 1 - GAP)
            color = COLORS[place % len(COLORS)]
            axes.barh(y + 0.5, width, left=left, height=0.5, color=color, linewidth=0)
            left += width
    axes.set_xlim(0, end)
    axes.set_ylim(rows, 0)
    axes.set_axis_off()
